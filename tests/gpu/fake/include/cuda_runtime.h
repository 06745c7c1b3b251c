// nvcc's built-in types and variables, and kernel launches, faked on the host. See ../README.md.
#pragma once

#include "cuda_runtime_api.h"

#include <functional>
#include <tuple>
#include <type_traits>

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  // NOLINTNEXTLINE(google-explicit-constructor): numbers convert to dim3 in CUDA, too
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Global variables suffice, because one thread of one block runs at a time.
inline dim3 gridDim, blockDim;
inline uint3 blockIdx{}, threadIdx{};

#define __device__
#define __global__
#define __grid_constant__
#define __shared__ static
void __syncthreads();

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

namespace fake_gpu {
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread);
}

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return fake_gpu::launch(*config, [kernel, copies = std::tuple<std::decay_t<Parameters>...>(arguments...)] {
    std::apply(kernel, copies);
  });
}
