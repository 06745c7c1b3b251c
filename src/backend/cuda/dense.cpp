// Dense layers on cuBLASLt. Our matrices are row-major, cuBLASLt's are column-major, so each of our matrices is its
// transpose to cuBLASLt. With X[rows, features], W[features, units] and Y[rows, units] the products are
//   forward     Y^T [units, rows]      = W^T X^T      bias and relu fused
//   backward    dW^T [units, features] = dY^T X       bias gradient fused: the sum of dY^T over rows
//               dX^T [features, rows]  = W dY^T
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/kernel_launchers.hpp"
#include "backend/cuda/matmul.hpp"

#include <memory>
#include <optional>
#include <string>

namespace lockstep::cuda {

namespace {

/// The kernel in the input's type: for bfloat16, the low-precision copy.
std::byte* kernel_of(const KernelScope& scope) {
  const int parameter = scope.operation.parameter;
  if (scope.input().type == ElementType::bfloat16) return reinterpret_cast<std::byte*>(scope.low_precision(parameter));
  return reinterpret_cast<std::byte*>(scope.weights(parameter));
}

class DenseForward final : public Kernel {
 public:
  explicit DenseForward(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        type_(scope.output().type),
        count_(scope.count(scope.output())),
        units_(static_cast<std::size_t>(scope.product().units)),
        function_(scope.operation.activation),
        bias_(scope.has_bias() ? scope.weights(scope.operation.parameter + 1) : nullptr),
        output_(scope.value<void>(scope.operation.output)) {
    const auto [rows, features, units] = scope.product();
    const MatmulShape shape{.m = units,
                            .n = rows,
                            .k = features,
                            .stride_a = units,
                            .stride_b = features,
                            .stride_d = units,
                            .input = scope.input().type,
                            .output = type_};
    MatmulOperands operands{.a = kernel_of(scope), .b = scope.value<void>(scope.operation.input), .d = output_};
    const bool relu = function_ == ActivationFunction::relu;
    if (bias_ != nullptr) {
      // A fused bias has the output's type. Keras casts it to that type in mixed precision, too.
      const bool low = type_ == ElementType::bfloat16;
      const int parameter = scope.operation.parameter + 1;
      operands.bias = low ? static_cast<void*>(scope.low_precision(parameter)) : scope.weights(parameter);
      operands.epilogue = relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    } else if (relu) {
      operands.epilogue = CUBLASLT_EPILOGUE_RELU;
    }
    product_.emplace(scope.cuda_context, shape, operands);
    if (product_->fused()) {
      bias_ = nullptr;
      if (relu) function_ = ActivationFunction::linear;
    }
    needs_epilogue_ = bias_ != nullptr || function_ != ActivationFunction::linear;
  }

  void enqueue(const StepContext& /*context*/) override {
    product_->enqueue();
    if (needs_epilogue_) add_bias_activation(stream_, type_, output_, type_, output_, bias_, count_, units_, function_);
  }
  [[nodiscard]] std::string implementation() const override {
    return product_->implementation() + (needs_epilogue_ ? ", custom epilogue" : "");
  }

 private:
  cudaStream_t stream_;
  ElementType type_;
  std::size_t count_;
  std::size_t units_;
  ActivationFunction function_;  ///< linear if it is fused
  const float* bias_;            ///< null if it is fused
  void* output_;
  bool needs_epilogue_ = false;
  std::optional<Matmul> product_;
};

/// Backward of one chunk of input features.
class DenseBackward final : public Kernel {
 public:
  explicit DenseBackward(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        type_(scope.input().type),
        rows_(static_cast<std::size_t>(scope.product().rows)),
        features_(static_cast<std::size_t>(scope.product().features)),
        units_(static_cast<std::size_t>(scope.product().units)),
        begin_(scope.operation.input_features.begin),
        chunk_(scope.operation.input_features.size()),
        input_function_(scope.operation.input_activation),
        scratch_(scope.reduction_scratch),
        input_(scope.value<std::byte>(scope.operation.input)),
        output_gradient_(scope.gradient<void>(scope.operation.output)) {
    const auto rows = static_cast<std::int64_t>(rows_);
    const auto units = static_cast<std::int64_t>(units_);
    const auto features = static_cast<std::int64_t>(features_);
    const auto chunk = static_cast<std::int64_t>(chunk_);
    // In mixed precision only the model's last weighted layer has a float32 output gradient.
    if (scope.output().type != type_) {
      converted_ = DeviceBuffer(rows_ * units_ * size_of(type_));
      convert_from_ = output_gradient_;
      output_gradient_ = converted_.data();
    }
    if (!scope.operation.is_frozen) bind_weights_product(scope);

    if (!scope.operation.input_gradient) return;
    input_gradient_ = scope.gradient<std::byte>(scope.operation.input);
    input_product_.emplace(scope.cuda_context,
                           MatmulShape{.m = chunk,
                                       .n = rows,
                                       .k = units,
                                       .transpose_a = true,
                                       .stride_a = units,
                                       .stride_b = units,
                                       .stride_d = features,
                                       .input = type_,
                                       .output = type_},
                           MatmulOperands{.a = kernel_of(scope) + begin_ * units_ * size_of(type_),
                                          .b = output_gradient_,
                                          .d = input_gradient_ + begin_ * size_of(type_)});
  }

  void enqueue(const StepContext& /*context*/) override {
    if (convert_from_ != nullptr) {
      add_bias_activation(stream_, ElementType::float32, convert_from_, type_, output_gradient_, nullptr,
                          rows_ * units_, units_, ActivationFunction::linear);
    }
    if (bias_gradient_ != nullptr) {
      reduce_bias_gradient(stream_, type_, output_gradient_, rows_, units_, scratch_, bias_gradient_);
    }
    if (weights_product_) weights_product_->enqueue();
    if (!input_product_) return;
    input_product_->enqueue();
    apply_activation_gradient(stream_, type_, input_, input_gradient_, rows_, features_, begin_, chunk_,
                              input_function_);
  }

  [[nodiscard]] std::string implementation() const override {
    std::string names = weights_product_ ? weights_product_->implementation() : "";
    if (input_product_) names += (names.empty() ? "" : ", ") + input_product_->implementation();
    return names;
  }

 private:
  void bind_weights_product(const KernelScope& scope) {
    const int parameter = scope.operation.parameter;
    const auto units = static_cast<std::int64_t>(units_);
    if (begin_ == 0 && scope.has_bias()) bias_gradient_ = scope.weights_gradient(parameter + 1);
    MatmulOperands operands{.a = output_gradient_,
                            .b = input_ + begin_ * size_of(type_),
                            .d = scope.weights_gradient(parameter) + begin_ * units_};
    if (bias_gradient_ != nullptr && !scope.cuda_context.rules().deterministic) {
      operands.epilogue = CUBLASLT_EPILOGUE_BGRADA;
      operands.bias = bias_gradient_;
    }
    weights_product_.emplace(scope.cuda_context,
                             MatmulShape{.m = units,
                                         .n = static_cast<std::int64_t>(chunk_),
                                         .k = static_cast<std::int64_t>(rows_),
                                         .transpose_b = true,
                                         .stride_a = units,
                                         .stride_b = static_cast<std::int64_t>(features_),
                                         .stride_d = units,
                                         .input = type_,
                                         .output = ElementType::float32},
                             operands);
    if (operands.bias != nullptr && weights_product_->fused()) bias_gradient_ = nullptr;
  }

  cudaStream_t stream_;
  ElementType type_;
  std::size_t rows_, features_, units_, begin_, chunk_;
  ActivationFunction input_function_;
  std::byte* scratch_;
  const std::byte* input_;
  const void* convert_from_ = nullptr;
  DeviceBuffer converted_;
  void* output_gradient_;
  float* bias_gradient_ = nullptr;  ///< null if its sum is fused or another chunk computes it
  std::byte* input_gradient_ = nullptr;
  std::optional<Matmul> weights_product_;
  std::optional<Matmul> input_product_;
};

}  // namespace

std::unique_ptr<Kernel> make_dense(const KernelScope& scope) { return std::make_unique<DenseForward>(scope); }

std::unique_ptr<Kernel> make_dense_backward(const KernelScope& scope) { return std::make_unique<DenseBackward>(scope); }

}  // namespace lockstep::cuda
