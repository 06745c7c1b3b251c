// See convolution_geometry.hpp.
#include "backend/cuda/convolution_geometry.hpp"

namespace lockstep::cuda {

namespace {

cudnnDataType_t data_type(ElementType type) {
  return type == ElementType::bfloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// CUDNN_DEFAULT_MATH allows cuDNN to round float32 inputs to TF32.
cudnnMathType_t math_of(const KernelScope& scope) {
  if (scope.input().type == ElementType::bfloat16) return CUDNN_TENSOR_OP_MATH;
  return scope.cuda_context.rules().allow_tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

}  // namespace

TensorDescriptor describe_images(ElementType type, std::size_t images, std::int64_t height, std::int64_t width,
                                 std::int64_t channels) {
  auto descriptor = make_handle<TensorDescriptor>(
      [](auto* handle) { check(cudnnCreateTensorDescriptor(handle), "cudnnCreateTensorDescriptor"); });
  check(cudnnSetTensor4dDescriptor(descriptor.get(), CUDNN_TENSOR_NHWC, data_type(type), static_cast<int>(images),
                                   static_cast<int>(channels), static_cast<int>(height), static_cast<int>(width)),
        "cudnnSetTensor4dDescriptor");
  return descriptor;
}

ConvolutionGeometry::ConvolutionGeometry(const KernelScope& scope)
    : type_(scope.input().type),
      num_examples_(scope.num_examples),
      channels_(scope.input().channels),
      height_(scope.input().height),
      width_(scope.input().width),
      math_(math_of(scope)) {
  const auto& [rows, columns] = scope.operation.windows;
  const auto as_int = [](std::int64_t number) { return static_cast<int>(number); };
  needs_padding_ = rows.pad_before() != rows.pad_after() || columns.pad_before() != columns.pad_after();
  padding_ = {.images = num_examples_,
              .height = static_cast<std::size_t>(height_),
              .width = static_cast<std::size_t>(width_),
              .channels = static_cast<std::size_t>(channels_),
              .padded_height = static_cast<std::size_t>(height_ + (needs_padding_ ? rows.pad_total() : 0)),
              .padded_width = static_cast<std::size_t>(width_ + (needs_padding_ ? columns.pad_total() : 0)),
              .above = static_cast<std::size_t>(rows.pad_before()),
              .before = static_cast<std::size_t>(columns.pad_before())};
  input_ = describe_images(type_, num_examples_, static_cast<std::int64_t>(padding_.padded_height),
                           static_cast<std::int64_t>(padding_.padded_width), channels_);
  output_ = describe_images(type_, num_examples_, scope.output().height, scope.output().width, scope.output().channels);
  filter_ = make_handle<FilterDescriptor>(
      [](auto* handle) { check(cudnnCreateFilterDescriptor(handle), "cudnnCreateFilterDescriptor"); });
  check(cudnnSetFilter4dDescriptor(filter_.get(), data_type(type_), CUDNN_TENSOR_NHWC,
                                   static_cast<int>(scope.output().channels), static_cast<int>(channels_),
                                   as_int(rows.kernel), as_int(columns.kernel)),
        "cudnnSetFilter4dDescriptor");
  convolution_ = make_handle<ConvolutionDescriptor>(
      [](auto* handle) { check(cudnnCreateConvolutionDescriptor(handle), "cudnnCreateConvolutionDescriptor"); });
  const int pad_above = needs_padding_ ? 0 : static_cast<int>(rows.pad_before());
  const int pad_before = needs_padding_ ? 0 : static_cast<int>(columns.pad_before());
  check(cudnnSetConvolution2dDescriptor(convolution_.get(), pad_above, pad_before, as_int(rows.stride),
                                        as_int(columns.stride), as_int(rows.dilation), as_int(columns.dilation),
                                        CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
        "cudnnSetConvolution2dDescriptor");
  set_math(math_);
  problem_ = {type_ == ElementType::bfloat16 ? 1 : 0,
              static_cast<std::int64_t>(num_examples_),
              static_cast<std::int64_t>(padding_.padded_height),
              static_cast<std::int64_t>(padding_.padded_width),
              channels_,
              scope.output().height,
              scope.output().width,
              scope.output().channels,
              rows.kernel,
              columns.kernel,
              pad_above,
              pad_before,
              rows.stride,
              columns.stride,
              rows.dilation,
              columns.dilation};
}

DeviceBuffer ConvolutionGeometry::make_padded_buffer() const {
  return DeviceBuffer(num_examples_ * padding_.padded_height * padding_.padded_width * padding_.channels *
                      size_of(type_));
}

void ConvolutionGeometry::set_math(cudnnMathType_t math) {
  check(cudnnSetConvolutionMathType(convolution_.get(), math), "cudnnSetConvolutionMathType");
}

}  // namespace lockstep::cuda
