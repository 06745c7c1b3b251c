// The per-channel sums of channel_reduction_functors.hpp, on the device. For .cu files only.
#pragma once

#include "backend/cuda/channel_reduction_functors.hpp"
#include "backend/cuda/launch.cuh"

#include <algorithm>
#include <bit>
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

/// A block adds the segments of one channel, in pairs.
template <typename Finish>
__global__ void finish_channels_kernel(const __grid_constant__ Finish finish, const Pair* partials, Index segments,
                                       Index channels) {
  __shared__ double first[max_segments];
  __shared__ double second[max_segments];
  const Index channel = blockIdx.x;
  const Index segment = threadIdx.x;
  const Pair partial = segment < segments ? partials[segment * channels + channel] : Pair();
  first[segment] = partial.first;
  second[segment] = partial.second;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (segment < half) {
      first[segment] += first[segment + half];
      second[segment] += second[segment + half];
    }
  }
  if (segment == 0) finish(channel, {first[0], second[0]});
}

/// Enqueues the sums over [pixels, channels] elements. `finish(channel, sum)` uses that of each channel.
template <typename Terms, typename Finish>
void reduce_channels(cudaStream_t stream, std::size_t pixels, std::size_t channels, const Terms& terms,
                     std::byte* scratch, const Finish& finish) {
  const std::size_t segments = segments_of(pixels);
  const dim3 blocks(static_cast<unsigned>((channels + channels_per_block - 1) / channels_per_block),
                    static_cast<unsigned>(segments));
  auto* partials = reinterpret_cast<Pair*>(scratch);
  launch(stream, blocks, dim3(channels_per_block, sum_lines), reduce_channels_kernel<Terms>, terms,
         static_cast<Index>(pixels), static_cast<Index>(channels), partials);
  launch(stream, dim3(static_cast<unsigned>(channels)), dim3(std::bit_ceil(static_cast<unsigned>(segments))),
         finish_channels_kernel<Finish>, finish, static_cast<const Pair*>(partials), static_cast<Index>(segments),
         static_cast<Index>(channels));
}

}  // namespace lockstep::cuda
