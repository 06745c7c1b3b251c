// The device's half of channel_sums.hpp. For .cu files only.
#pragma once

#include "backend/cuda/channel_sums.hpp"
#include "backend/cuda/launch.cuh"

#include <algorithm>
#include <cstddef>

namespace lockstep::cuda {

constexpr unsigned sum_lanes = 32;  // channels of a block, side by side
constexpr unsigned sum_lines = 8;   // pixels of a block at once
constexpr std::size_t most_segments = 256;

[[nodiscard]] inline std::size_t segments_of(std::size_t pixels) {
  return std::clamp<std::size_t>(pixels / 256, 1, most_segments);
}

/// Bytes of scratch memory for a sum over channels.
[[nodiscard]] inline std::size_t partial_bytes(std::size_t channels) { return most_segments * channels * sizeof(Pair); }

template <typename Terms>
__global__ void add_terms(const __grid_constant__ Terms terms, Index pixels, Index channels, Pair* partials) {
  const Index channel = blockIdx.x * sum_lanes + threadIdx.x;
  Pair sum;
  if (channel < channels) {
    for (Index pixel = blockIdx.y * sum_lines + threadIdx.y; pixel < pixels; pixel += gridDim.y * sum_lines) {
      const Pair term = terms(static_cast<std::size_t>(pixel) * channels + channel, channel);
      sum.first += term.first;
      sum.second += term.second;
    }
  }
  __shared__ double first[sum_lines][sum_lanes];
  __shared__ double second[sum_lines][sum_lanes];
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

/// Enqueues the first stage over `pixels` x `channels` elements. The result reads `scratch`.
template <typename Terms>
[[nodiscard]] PartialSums sum_channels(cudaStream_t stream, std::size_t pixels, std::size_t channels,
                                       const Terms& terms, std::byte* scratch) {
  const std::size_t segments = segments_of(pixels);
  const dim3 blocks(static_cast<unsigned>((channels + sum_lanes - 1) / sum_lanes), static_cast<unsigned>(segments));
  auto* partials = reinterpret_cast<Pair*>(scratch);
  launch(stream, blocks, dim3(sum_lanes, sum_lines), add_terms<Terms>, terms, static_cast<Index>(pixels),
         static_cast<Index>(channels), partials);
  return {partials, static_cast<Index>(segments), static_cast<Index>(channels)};
}

}  // namespace lockstep::cuda
