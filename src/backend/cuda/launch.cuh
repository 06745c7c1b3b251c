// Launches kernels, and runs functors on the device with one thread per index. For .cu files only.
#pragma once

#include "backend/cuda/index.hpp"
#include "core/cuda/check.hpp"

#include <lockstep/core/error.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <limits>
#include <string>

namespace lockstep::cuda {

/// kernel<<<blocks, threads, 0, stream>>>(arguments...) as a function call, which any C++ compiler can parse.
template <typename... Parameters, typename... Arguments>
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), "a kernel's launch");
}

template <typename Functor>
__global__ void run_functor(const __grid_constant__ Functor functor, Index count) {
  const Index i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) functor(i);
}

template <typename Functor>
void for_each(cudaStream_t stream, std::size_t count, const Functor& functor) {
  constexpr unsigned threads = 256;
  if (count == 0) return;
  if (count > std::numeric_limits<Index>::max() - threads) {
    throw UsageError("a tensor of " + std::to_string(count) +
                     " elements is too large for one GPU kernel; use a smaller --global-batch-size or more workers");
  }
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  launch(stream, blocks, threads, run_functor<Functor>, functor, static_cast<Index>(count));
}

}  // namespace lockstep::cuda
