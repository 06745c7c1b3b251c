// A convolution's cuDNN descriptors: images, kernel, strides, dilation and padding.
#pragma once

#include "backend/cuda/kernel.hpp"
#include "backend/cuda/kernel_launchers.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

using TensorDescriptor = UniqueHandle<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterDescriptor = UniqueHandle<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor = UniqueHandle<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

[[nodiscard]] TensorDescriptor describe_images(ElementType type, std::size_t images, std::int64_t height,
                                               std::int64_t width, std::int64_t channels);

/// The descriptors that the three products of a convolution share. cuDNN pads both sides equally. Where Keras pads
/// unequally, the images are first padded with zeros, and the input's gradient is cropped.
class ConvolutionGeometry {
 public:
  explicit ConvolutionGeometry(const KernelScope& scope);

  [[nodiscard]] ElementType type() const noexcept { return type_; }
  [[nodiscard]] bool needs_padding() const noexcept { return needs_padding_; }
  [[nodiscard]] const PaddingSizes& padding() const noexcept { return padding_; }
  [[nodiscard]] DeviceBuffer make_padded_buffer() const;

  /// The cache key of an algorithm, except for which of the three products it computes.
  [[nodiscard]] const ProblemKey& problem() const noexcept { return problem_; }

  /// The math type that the AlgorithmRules require.
  [[nodiscard]] cudnnMathType_t math() const noexcept { return math_; }
  void set_math(cudnnMathType_t math);

  [[nodiscard]] cudnnTensorDescriptor_t input() const noexcept { return input_.get(); }
  [[nodiscard]] cudnnTensorDescriptor_t output() const noexcept { return output_.get(); }
  [[nodiscard]] cudnnFilterDescriptor_t filter() const noexcept { return filter_.get(); }
  [[nodiscard]] cudnnConvolutionDescriptor_t convolution() const noexcept { return convolution_.get(); }

 private:
  ElementType type_;
  std::size_t num_examples_;
  std::int64_t channels_, height_, width_;
  bool needs_padding_ = false;
  PaddingSizes padding_{};
  ProblemKey problem_;
  cudnnMathType_t math_;
  TensorDescriptor input_, output_;
  FilterDescriptor filter_;
  ConvolutionDescriptor convolution_;
};

}  // namespace lockstep::cuda
