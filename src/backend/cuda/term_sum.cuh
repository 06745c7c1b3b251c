// Sums terms in a fixed order: one thread block per sum. For .cu files only.
#pragma once

#include "backend/cuda/launch.cuh"

namespace lockstep::cuda {

constexpr unsigned sum_threads = 256;

/// store(sum, sum of term(sum, i) for i in [0, count)), where `sum` is the block's index.
template <typename Term, typename Store>
__global__ void sum_terms(const __grid_constant__ Term term, Index count, const __grid_constant__ Store store) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += term(blockIdx.x, i);
  __shared__ double parts[sum_threads];
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = sum_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) store(blockIdx.x, parts[0]);
}

}  // namespace lockstep::cuda
