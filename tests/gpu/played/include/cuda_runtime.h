// What nvcc knows by itself, and the launch of kernels, played on the host: see ../README.md.
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
  // NOLINTNEXTLINE(google-explicit-constructor): a number is one
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// One thread of one block runs at a time, so there is one of each.
inline dim3 gridDim, blockDim;
inline uint3 blockIdx{}, threadIdx{};

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

namespace played {
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread);
}

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return played::launch(*config, [kernel, copies = std::tuple<std::decay_t<Parameters>...>(arguments...)] {
    std::apply(kernel, copies);
  });
}
