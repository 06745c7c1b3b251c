// See product_backward.hpp.
#include "backend/cuda/product_backward.hpp"

#include "backend/cuda/kernel_launchers.hpp"

namespace lockstep::cuda {

ProductBackward::ProductBackward(const KernelScope& scope, Make make_weights_gradient, Make make_input_gradient)
    : stream_(scope.cuda_context.stream()),
      type_(scope.input().type),
      count_(scope.count(scope.output())),
      channels_(static_cast<std::size_t>(scope.output().channels)) {
  KernelScope converted = scope;
  if (scope.output().type != type_) {  // in mixed precision, of the model's last layer with weights
    converted_ = DeviceBuffer(count_ * size_of(type_));
    convert_from_ = scope.gradient<void>(scope.operation.output);
    converted.converted_gradient = converted_.data();
  }
  if (!scope.operation.is_frozen) kernels_.push_back(make_weights_gradient(converted));
  if (scope.operation.input_gradient) kernels_.push_back(make_input_gradient(converted));
}

void ProductBackward::enqueue(const StepContext& context) {
  if (convert_from_ != nullptr) {
    add_bias_activation(stream_, ElementType::float32, convert_from_, type_, converted_.data(), nullptr, count_,
                        channels_, ActivationFunction::linear);
  }
  for (const std::unique_ptr<Kernel>& kernel : kernels_) kernel->enqueue(context);
}

std::string ProductBackward::implementation() const {
  std::string names;
  for (const std::unique_ptr<Kernel>& kernel : kernels_) {
    names += (names.empty() ? "" : ", ") + kernel->implementation();
  }
  return names;
}

BiasGradient::BiasGradient(const KernelScope& scope, float* gradient)
    : stream_(scope.cuda_context.stream()),
      type_(scope.input().type),
      pixels_(scope.count(scope.output()) / static_cast<std::size_t>(scope.output().channels)),
      channels_(static_cast<std::size_t>(scope.output().channels)),
      output_(scope.value<void>(scope.operation.output)),
      output_gradient_(scope.output_gradient()),
      derived_(scope.operation.derives_activation ? scope.operation.activation : ActivationFunction::linear),
      scratch_(scope.reduction_scratch),
      gradient_(gradient) {}

void BiasGradient::enqueue() const {
  apply_activation_gradient(stream_, type_, output_, output_gradient_, pixels_, channels_, 0, channels_, derived_);
  if (gradient_ != nullptr) {
    reduce_bias_gradient(stream_, type_, output_gradient_, pixels_, channels_, scratch_, gradient_);
  }
}

}  // namespace lockstep::cuda
