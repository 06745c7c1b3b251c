// Runs bodies on the device: one thread an index. For .cu files only.
#pragma once

#include "backend/cuda/host_device.hpp"
#include "core/cuda/check.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

namespace lockstep::cuda {

template <typename Body>
__global__ void run_body(const __grid_constant__ Body body, Index count) {
  const Index i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) body(i);
}

template <typename Body>
void for_each(cudaStream_t stream, std::size_t count, const Body& body) {
  constexpr unsigned threads = 256;
  if (count == 0) return;
  if (count > std::numeric_limits<Index>::max() - threads) {
    throw UsageError("a tensor of " + std::to_string(count) +
                     " elements is more than one GPU takes at once; use a smaller --global-batch-size or more workers");
  }
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  run_body<<<blocks, threads, 0, stream>>>(body, static_cast<Index>(count));
  check(cudaGetLastError(), "a kernel's launch");
}

}  // namespace lockstep::cuda
