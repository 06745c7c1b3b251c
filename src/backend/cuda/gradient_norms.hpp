// Norms of gradients, for optimizers that clip by them: squares are added up on the device and become scales there, so
// that the host waits for nothing and a clipped step can be recorded as any other. Every rank has all gradients,
// summed, and adds their squares in the same order: all find the same scales.
#pragma once

#include "backend/backend.hpp"
#include "core/cuda/memory.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lockstep::cuda {

class GradientNorms {
 public:
  explicit GradientNorms(const Graph& graph);

  /// Enqueues the squares of what [begin, end) has of each trainable weight's gradient.
  void add_squares(cudaStream_t stream, const Graph& graph, const float* gradients, std::size_t begin,
                   std::size_t end) const;

  /// Enqueues what makes scales of the squares added since the last time.
  void find_scales(cudaStream_t stream, const Clipping& clipping) const;

  /// Where the device puts the scale of a parameter's gradient.
  [[nodiscard]] const float* scale_of(std::size_t parameter) const noexcept { return scales_.as<float>() + parameter; }

 private:
  std::size_t parameters_;
  DeviceBuffer partials_;  ///< of one sum at a time
  DeviceBuffer lanes_;     ///< [parameter][lane]; zero between steps
  DeviceBuffer squares_;   ///< [parameter]
  DeviceBuffer scales_;    ///< [parameter]
};

}  // namespace lockstep::cuda
