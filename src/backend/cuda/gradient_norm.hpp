// Gradient norms for optimizers that clip by norm. The device computes the norms and the clip scales, so the host does
// not wait, and clipped steps can be captured. Every rank has the full all-reduced gradients and adds their squares in
// the same order, so all ranks compute the same scales.
#pragma once

#include "backend/backend.hpp"
#include "core/cuda/memory.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lockstep::cuda {

class GradientNorm {
 public:
  explicit GradientNorm(const Graph& graph);

  /// Enqueues the addition of the squared gradients in [begin, end) to the sums of their parameters. Skips parameters
  /// that the optimizer does not update.
  void add_squared_gradients(cudaStream_t stream, const Graph& graph, const float* gradients, std::size_t begin,
                             std::size_t end);

  /// Enqueues the computation of clip scales from the squares added since the last call.
  void make_clip_scales(cudaStream_t stream, const Clipping& clipping);

  /// The clip scale of a parameter's gradient, in device memory.
  [[nodiscard]] const float* clip_scale(std::size_t parameter) const noexcept {
    return clip_scales_.as<float>() + parameter;
  }

 private:
  std::size_t parameters_;
  DeviceBuffer partials_;       ///< scratch memory of one sum
  DeviceBuffer lanes_;          ///< [parameter][lane]; zero between steps
  DeviceBuffer squared_norms_;  ///< [parameter]
  DeviceBuffer clip_scales_;    ///< [parameter]
};

}  // namespace lockstep::cuda
