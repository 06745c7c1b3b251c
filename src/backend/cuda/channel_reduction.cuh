// The first stage of the per-channel sums of channel_reduction_functors.hpp, on the device. For .cu files only.
#pragma once

#include "backend/cuda/channel_reduction_functors.hpp"
#include "backend/cuda/launch.cuh"

#include <algorithm>
#include <cstddef>

namespace lockstep::cuda {

constexpr unsigned channels_per_block = 32;
constexpr unsigned sum_lines = 8;  // pixels that a thread block adds in parallel
constexpr std::size_t max_segments = 256;

[[nodiscard]] inline std::size_t segments_of(std::size_t pixels) {
  return std::clamp<std::size_t>(pixels / 256, 1, max_segments);
}

/// Bytes of scratch memory for per-channel sums.
[[nodiscard]] inline std::size_t channel_reduction_bytes(std::size_t channels) {
  return max_segments * channels * sizeof(Pair);
}

template <typename Terms>
__global__ void reduce_channels_kernel(const __grid_constant__ Terms terms, Index pixels, Index channels,
                                       Pair* partials) {
  const Index channel = blockIdx.x * channels_per_block + threadIdx.x;
  Pair sum;
  if (channel < channels) {
    for (Index pixel = blockIdx.y * sum_lines + threadIdx.y; pixel < pixels; pixel += gridDim.y * sum_lines) {
      const Pair term = terms(static_cast<std::size_t>(pixel) * channels + channel, channel);
      sum.first += term.first;
      sum.second += term.second;
    }
  }
  __shared__ double first[sum_lines][channels_per_block];
  __shared__ double second[sum_lines][channels_per_block];
  first[threadIdx.y][threadIdx.x] = sum.first;
  second[threadIdx.y][threadIdx.x] = sum.second;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  for (unsigned line = 1; line < sum_lines; ++line) {
    sum.first += first[line][threadIdx.x];
    sum.second += second[line][threadIdx.x];
  }
  partials[blockIdx.y * channels + channel] = sum;
}

/// Enqueues the first stage over [pixels, channels] elements. The result points into `scratch`.
template <typename Terms>
[[nodiscard]] PartialSums reduce_channels(cudaStream_t stream, std::size_t pixels, std::size_t channels,
                                          const Terms& terms, std::byte* scratch) {
  const std::size_t segments = segments_of(pixels);
  const dim3 blocks(static_cast<unsigned>((channels + channels_per_block - 1) / channels_per_block),
                    static_cast<unsigned>(segments));
  auto* partials = reinterpret_cast<Pair*>(scratch);
  launch(stream, blocks, dim3(channels_per_block, sum_lines), reduce_channels_kernel<Terms>, terms,
         static_cast<Index>(pixels), static_cast<Index>(channels), partials);
  return {partials, static_cast<Index>(segments), static_cast<Index>(channels)};
}

}  // namespace lockstep::cuda
