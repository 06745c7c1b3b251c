// See kernel_launchers.hpp.
#include "backend/cuda/kernel_launchers.hpp"

#include "backend/cuda/channel_reduction.cuh"
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
PadImages<T> pad_images_functor(const void* from, void* to, const PaddingSizes& s, bool crops) {
  const auto index = [](std::size_t size) { return static_cast<Index>(size); };
  return {static_cast<const T*>(from), static_cast<T*>(to),   index(s.height), index(s.width),  index(s.channels),
          index(s.padded_height),      index(s.padded_width), index(s.above),  index(s.before), crops};
}

void copy_padding(cudaStream_t stream, ElementType type, const void* from, void* to, const PaddingSizes& sizes,
                bool crops) {
  const std::size_t count = sizes.images * sizes.height * sizes.width * sizes.channels;
  with_type(type, [&](auto zero) { for_each(stream, count, pad_images_functor<decltype(zero)>(from, to, sizes, crops)); });
}

}  // namespace

void add_bias_activation(cudaStream_t stream, ElementType from_type, const void* from, ElementType to_type, void* to,
            const float* bias, std::size_t count, std::size_t channels, ActivationFunction function) {
  with_type(from_type, [&](auto from_zero) {
    with_type(to_type, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      for_each(stream, count,
               AddBiasActivation<From, To>{static_cast<const From*>(from), static_cast<To*>(to), bias,
                                static_cast<Index>(channels), function});
    });
  });
}

void apply_activation_gradient(cudaStream_t stream, ElementType type, const void* x, void* gradient, std::size_t rows,
               std::size_t stride, std::size_t begin, std::size_t width, ActivationFunction function) {
  if (function == ActivationFunction::linear) return;
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    for_each(stream, rows * width,
             ActivationGradientColumns<T>{static_cast<const T*>(x), static_cast<T*>(gradient), static_cast<Index>(begin),
                                static_cast<Index>(width), static_cast<Index>(stride), function});
  });
}

void reduce_bias_gradient(cudaStream_t stream, ElementType type, const void* gradient, std::size_t pixels, std::size_t channels,
              std::byte* scratch, float* bias_gradient) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    reduce_channels(stream, pixels, channels, ValueTerms<T>{static_cast<const T*>(gradient)}, scratch,
                    FinishBiasGradient{bias_gradient});
  });
}

void fill_with_random_numbers(cudaStream_t stream, ElementType type, void* memory, std::size_t count) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    for_each(stream, count, FillWithRandomNumbers<T>{static_cast<T*>(memory)});
  });
}

std::size_t channel_reduction_scratch_bytes(std::size_t channels) { return channel_reduction_bytes(channels); }

void pad_images(cudaStream_t stream, ElementType type, const void* from, void* padded, const PaddingSizes& sizes) {
  copy_padding(stream, type, from, padded, sizes, false);
}

void crop_images(cudaStream_t stream, ElementType type, const void* padded, void* to, const PaddingSizes& sizes) {
  copy_padding(stream, type, padded, to, sizes, true);
}

}  // namespace lockstep::cuda
