// Sums in a fixed order by one thread block of `sum_threads`. For .cu files only.
#pragma once

#include "backend/cuda/launch.cuh"

namespace lockstep::cuda {

constexpr unsigned sum_threads = 256;

/// The sum of the block's values, for its first thread.
static __device__ double sum_over_block(double value) {
  __shared__ double sums[sum_threads];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = sum_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

/// store(sum, sum of term(sum, i) for i in [0, count)), where `sum` is the block's index.
template <typename Term, typename Store>
__global__ void sum_terms(const __grid_constant__ Term term, Index count, const __grid_constant__ Store store) {
  double sum = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) sum += term(blockIdx.x, i);
  const double whole = sum_over_block(sum);
  if (threadIdx.x == 0) store(blockIdx.x, whole);
}

}  // namespace lockstep::cuda
