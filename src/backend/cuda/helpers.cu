// See helpers.hpp.
#include "backend/cuda/helpers.hpp"

#include "backend/cuda/channel_sums.cuh"
#include "backend/cuda/launch.cuh"

namespace lockstep::cuda {

namespace {

template <typename Function>
void with_type(ElementType type, Function&& function) {
  if (type == ElementType::bfloat16) {
    function(BFloat16{});
  } else {
    function(float{});
  }
}

template <typename T>
Frame<T> frame_of(const void* from, void* to, const FrameSizes& s, bool inward) {
  const auto index = [](std::size_t size) { return static_cast<Index>(size); };
  return {static_cast<const T*>(from), static_cast<T*>(to),   index(s.height), index(s.width),  index(s.channels),
          index(s.framed_height),      index(s.framed_width), index(s.above),  index(s.before), inward};
}

void copy_frame(cudaStream_t stream, ElementType type, const void* from, void* to, const FrameSizes& sizes,
                bool inward) {
  const std::size_t count = sizes.images * sizes.height * sizes.width * sizes.channels;
  with_type(type, [&](auto zero) { for_each(stream, count, frame_of<decltype(zero)>(from, to, sizes, inward)); });
}

}  // namespace

void finish(cudaStream_t stream, ElementType from_type, const void* from, ElementType to_type, void* to,
            const float* bias, std::size_t count, std::size_t channels, ActivationFunction function) {
  with_type(from_type, [&](auto from_zero) {
    with_type(to_type, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      for_each(stream, count,
               Finish<From, To>{static_cast<const From*>(from), static_cast<To*>(to), bias,
                                static_cast<Index>(channels), function});
    });
  });
}

void pass_back(cudaStream_t stream, ElementType type, const void* x, void* gradient, std::size_t rows,
               std::size_t stride, std::size_t begin, std::size_t width, ActivationFunction function) {
  if (function == ActivationFunction::linear) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    for_each(stream, rows * width,
             PassBackColumns<T>{static_cast<const T*>(x), static_cast<T*>(gradient), static_cast<Index>(begin),
                                static_cast<Index>(width), static_cast<Index>(stride), function});
  });
}

void sum_bias(cudaStream_t stream, ElementType type, const void* gradient, std::size_t pixels, std::size_t channels,
              std::byte* scratch, float* bias_gradient) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const PartialSums sums =
        sum_channels(stream, pixels, channels, ValueTerms<T>{static_cast<const T*>(gradient)}, scratch);
    for_each(stream, channels, FinishBias{sums, bias_gradient});
  });
}

std::size_t sum_scratch_bytes(std::size_t channels) { return partial_bytes(channels); }

void put_in_frame(cudaStream_t stream, ElementType type, const void* from, void* framed, const FrameSizes& sizes) {
  copy_frame(stream, type, from, framed, sizes, false);
}

void take_out_of_frame(cudaStream_t stream, ElementType type, const void* framed, void* to, const FrameSizes& sizes) {
  copy_frame(stream, type, framed, to, sizes, true);
}

}  // namespace lockstep::cuda
