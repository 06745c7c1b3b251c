// Launches kernels; and runs bodies on the device, one thread an index. For .cu files only.
#pragma once

#include "backend/cuda/host_device.hpp"
#include "core/cuda/check.hpp"

#include <lockstep/core/error.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <limits>
#include <string>

namespace lockstep::cuda {

/// kernel<<<blocks, threads, 0, stream>>>(arguments...) as a call, which any C++ compiler reads.
template <typename... Parameters, typename... Arguments>
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "a kernel's launch");
}

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
  launch(stream, blocks, threads, run_body<Body>, body, static_cast<Index>(count));
}

}  // namespace lockstep::cuda
