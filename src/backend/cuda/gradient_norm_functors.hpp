// Functors of clipping by norm: sums of squared gradients in a fixed order, and clip scales. A gradient is treated as a
// matrix with `norm_lanes` columns, so that the per-channel sums of channel_reduction_functors.hpp can add its rows.
#pragma once

#include "backend/cuda/channel_reduction_functors.hpp"

#include <cmath>
#include <cstddef>

namespace lockstep::cuda {

constexpr Index norm_lanes = 32;

struct SquaredGradientTerms {
  const float* gradients;
  std::size_t count;  ///< the last row may be short
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Pair operator()(std::size_t at, Index /*lane*/) const {
    const double value = at < count ? gradients[at] : 0.0F;  // the square of a float is exact in double
    return {value * value, 0.0};
  }
};

/// Adds the sums of one bucket's slice of a gradient to that gradient's lanes.
struct AddLane {
  double* lanes;
  LOCKSTEP_HOST_DEVICE void operator()(Index lane, const Pair& sum) const { lanes[lane] += sum.first; }
};

/// Sums each gradient's lanes, and zeroes them for the next step.
struct SumLanes {
  double* lanes;
  double* squared_norms;
  LOCKSTEP_HOST_DEVICE void operator()(Index parameter) const {
    double sum = 0;
    for (Index lane = 0; lane < norm_lanes; ++lane) {
      double& partial = lanes[parameter * norm_lanes + lane];
      sum += partial;
      partial = 0;
    }
    squared_norms[parameter] = sum;
  }
};

/// The factor that reduces a gradient's norm to the bound: by its own norm (clipnorm) or by the norm of all gradients
/// (global_clipnorm). NaN stays NaN, as in Keras.
struct MakeClipScale {
  const double* squared_norms;
  float* clip_scales;
  Index parameters;
  double bound;
  bool global;
  LOCKSTEP_HOST_DEVICE void operator()(Index parameter) const {
    double sum = global ? 0 : squared_norms[parameter];
    for (Index p = 0; global && p < parameters; ++p) sum += squared_norms[p];
    const double norm = std::sqrt(sum);
    clip_scales[parameter] = norm <= bound ? 1.0F : static_cast<float>(bound / norm);
  }
};

}  // namespace lockstep::cuda
