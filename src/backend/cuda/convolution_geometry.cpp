// See convolution_geometry.hpp.
#include "backend/cuda/convolution_geometry.hpp"

#include "nn/window.hpp"

#include <variant>

namespace lockstep::cuda {

namespace {

cudnnDataType_t data_type(ElementType type) {
  return type == ElementType::bfloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// The default lets float32 be rounded to TF32 on its way into a product.
cudnnMathType_t math_of(const KernelScope& scope) {
  if (scope.input().type == ElementType::bfloat16) return CUDNN_TENSOR_OP_MATH;
  return scope.tools.rules().allow_tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

Window axis_of(std::int64_t input, int kernel, int stride, int dilation, Padding padding) {
  return {.input = input, .kernel = kernel, .stride = stride, .dilation = dilation, .padding = padding};
}

}  // namespace

TensorDescriptor describe_images(ElementType type, std::size_t images, std::int64_t height, std::int64_t width,
                                 std::int64_t channels) {
  auto descriptor = make_owned<TensorDescriptor>(
      [](auto* handle) { check(cudnnCreateTensorDescriptor(handle), "cudnnCreateTensorDescriptor"); });
  check(cudnnSetTensor4dDescriptor(descriptor.get(), CUDNN_TENSOR_NHWC, data_type(type), static_cast<int>(images),
                                   static_cast<int>(channels), static_cast<int>(height), static_cast<int>(width)),
        "cudnnSetTensor4dDescriptor");
  return descriptor;
}

ConvolutionGeometry::ConvolutionGeometry(const KernelScope& scope)
    : type_(scope.input().type),
      rows_(scope.rows),
      channels_(scope.input().channels),
      height_(scope.input().height),
      width_(scope.input().width),
      math_(math_of(scope)) {
  const auto& conv = std::get<Conv2D>(scope.layer().layer);
  const Window tall =
      axis_of(height_, conv.kernel_size.height, conv.strides.height, conv.dilation_rate.height, conv.padding);
  const Window wide =
      axis_of(width_, conv.kernel_size.width, conv.strides.width, conv.dilation_rate.width, conv.padding);
  framed_ = tall.pad_before() != tall.pad_after() || wide.pad_before() != wide.pad_after();
  frame_ = {.images = rows_,
            .height = static_cast<std::size_t>(height_),
            .width = static_cast<std::size_t>(width_),
            .channels = static_cast<std::size_t>(channels_),
            .framed_height = static_cast<std::size_t>(height_ + (framed_ ? tall.pad_total() : 0)),
            .framed_width = static_cast<std::size_t>(width_ + (framed_ ? wide.pad_total() : 0)),
            .above = static_cast<std::size_t>(tall.pad_before()),
            .before = static_cast<std::size_t>(wide.pad_before())};
  input_ = describe_images(type_, rows_, static_cast<std::int64_t>(frame_.framed_height),
                           static_cast<std::int64_t>(frame_.framed_width), channels_);
  output_ = describe_images(type_, rows_, scope.output().height, scope.output().width, scope.output().channels);
  filter_ = make_owned<FilterDescriptor>(
      [](auto* handle) { check(cudnnCreateFilterDescriptor(handle), "cudnnCreateFilterDescriptor"); });
  check(cudnnSetFilter4dDescriptor(filter_.get(), data_type(type_), CUDNN_TENSOR_NHWC,
                                   static_cast<int>(scope.output().channels), static_cast<int>(channels_),
                                   conv.kernel_size.height, conv.kernel_size.width),
        "cudnnSetFilter4dDescriptor");
  convolution_ = make_owned<ConvolutionDescriptor>(
      [](auto* handle) { check(cudnnCreateConvolutionDescriptor(handle), "cudnnCreateConvolutionDescriptor"); });
  const int pad_above = framed_ ? 0 : static_cast<int>(tall.pad_before());
  const int pad_before = framed_ ? 0 : static_cast<int>(wide.pad_before());
  check(cudnnSetConvolution2dDescriptor(convolution_.get(), pad_above, pad_before, conv.strides.height,
                                        conv.strides.width, conv.dilation_rate.height, conv.dilation_rate.width,
                                        CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "cudnnSetConvolution2dDescriptor");
  set_math(math_);
  problem_ = {type_ == ElementType::bfloat16 ? 1 : 0,
              static_cast<std::int64_t>(rows_),
              static_cast<std::int64_t>(frame_.framed_height),
              static_cast<std::int64_t>(frame_.framed_width),
              channels_,
              scope.output().height,
              scope.output().width,
              scope.output().channels,
              conv.kernel_size.height,
              conv.kernel_size.width,
              pad_above,
              pad_before,
              conv.strides.height,
              conv.strides.width,
              conv.dilation_rate.height,
              conv.dilation_rate.width};
}

DeviceBuffer ConvolutionGeometry::make_frame() const {
  return DeviceBuffer(rows_ * frame_.framed_height * frame_.framed_width * frame_.channels * size_of(type_));
}

void ConvolutionGeometry::set_math(cudnnMathType_t math) {
  check(cudnnSetConvolutionMathType(convolution_.get(), math), "cudnnSetConvolutionMathType");
}

}  // namespace lockstep::cuda
