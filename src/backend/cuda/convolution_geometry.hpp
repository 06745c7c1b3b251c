// What cuDNN is told of a convolution: images, kernel, and how one slides over the other.
#pragma once

#include "backend/cuda/helpers.hpp"
#include "backend/cuda/kernel.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

using TensorDescriptor = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterDescriptor = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor = Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

[[nodiscard]] TensorDescriptor describe_images(ElementType type, std::size_t images, std::int64_t height,
                                               std::int64_t width, std::int64_t channels);

/// What the three products of a convolution share. cuDNN pads both sides alike; where Keras does not, images are first
/// put into a frame of zeros, and the gradient is taken out of one.
class ConvolutionGeometry {
 public:
  explicit ConvolutionGeometry(const KernelScope& scope);

  [[nodiscard]] ElementType type() const noexcept { return type_; }
  [[nodiscard]] bool framed() const noexcept { return framed_; }
  [[nodiscard]] const FrameSizes& frame() const noexcept { return frame_; }
  [[nodiscard]] DeviceBuffer make_frame() const;

  /// All that decides how fast an algorithm is, but which of the three products it computes.
  [[nodiscard]] const Problem& problem() const noexcept { return problem_; }

  /// What the rules demand of the arithmetic.
  [[nodiscard]] cudnnMathType_t math() const noexcept { return math_; }
  void set_math(cudnnMathType_t math);

  [[nodiscard]] cudnnTensorDescriptor_t input() const noexcept { return input_.get(); }
  [[nodiscard]] cudnnTensorDescriptor_t output() const noexcept { return output_.get(); }
  [[nodiscard]] cudnnFilterDescriptor_t filter() const noexcept { return filter_.get(); }
  [[nodiscard]] cudnnConvolutionDescriptor_t convolution() const noexcept { return convolution_.get(); }

 private:
  ElementType type_;
  std::size_t rows_;
  std::int64_t channels_, height_, width_;
  bool framed_ = false;
  FrameSizes frame_{};
  Problem problem_;
  cudnnMathType_t math_;
  TensorDescriptor input_, output_;
  FilterDescriptor filter_;
  ConvolutionDescriptor convolution_;
};

}  // namespace lockstep::cuda
