// Bodies of clipping by norm: squares of gradients, added in a fixed order, and what they make of each gradient. A
// gradient's squares are laid out as rows of `lanes`, so that the sums over channels (channel_sums.hpp) add the rows.
#pragma once

#include "backend/cuda/channel_sums.hpp"

#include <cmath>
#include <cstddef>

namespace lockstep::cuda {

constexpr Index square_lanes = 32;

struct SquareTerms {
  const float* gradients;
  std::size_t count;  ///< the last row may be short
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Pair operator()(std::size_t at, Index /*lane*/) const {
    const double value = at < count ? gradients[at] : 0.0F;  // whose square is exact, and finite
    return {value * value, 0.0};
  }
};

/// Adds a share's part of a gradient to that gradient's lanes.
struct AddLane {
  PartialSums sums;
  double* lanes;
  LOCKSTEP_HOST_DEVICE void operator()(Index lane) const { lanes[lane] += sums.of(lane).first; }
};

/// The sum of each gradient's lanes, which are then ready for the next step.
struct TakeLanes {
  double* lanes;
  double* squares;
  LOCKSTEP_HOST_DEVICE void operator()(Index parameter) const {
    double sum = 0;
    for (Index lane = 0; lane < square_lanes; ++lane) {
      double& part = lanes[parameter * square_lanes + lane];
      sum += part;
      part = 0;
    }
    squares[parameter] = sum;
  }
};

/// What brings a gradient down to the bound: by its own norm, or by that of all together. NaN stays NaN, as in Keras.
struct FindScale {
  const double* squares;
  float* scales;
  Index parameters;
  double bound;
  bool together;
  LOCKSTEP_HOST_DEVICE void operator()(Index parameter) const {
    double sum = together ? 0 : squares[parameter];
    for (Index p = 0; together && p < parameters; ++p) sum += squares[p];
    const double norm = std::sqrt(sum);
    scales[parameter] = norm <= bound ? 1.0F : static_cast<float>(bound / norm);
  }
};

}  // namespace lockstep::cuda
