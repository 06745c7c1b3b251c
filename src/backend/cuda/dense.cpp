// Dense layers on cuBLASLt. Our matrices are row-major, cuBLASLt's are column-major, so each of our matrices is its
// transpose to cuBLASLt. With X[rows, features], W[features, units] and Y[rows, units] the products are
//   forward     Y^T [units, rows]      = W^T X^T      bias and relu fused
//   backward    dW^T [units, features] = dY^T X       bias gradient fused: the sum of dY^T over rows
//               dX^T [features, rows]  = W dY^T
// Each product is timed with and without what may be fused into it.
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/kernel_launchers.hpp"
#include "backend/cuda/matmul.hpp"
#include "backend/cuda/product_backward.hpp"

#include <memory>
#include <string>
#include <utility>

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
  DenseForward(const KernelScope& scope, bool is_fused, const cublasLtMatmulAlgo_t& algorithm)
      : stream_(scope.cuda_context.stream()),
        type_(scope.output().type),
        count_(scope.count(scope.output())),
        units_(static_cast<std::size_t>(scope.product().units)),
        function_(scope.operation.activation),
        bias_(scope.has_bias() && !is_fused ? scope.weights(scope.operation.parameter + 1) : nullptr),
        output_(scope.value<void>(scope.operation.output)),
        algorithm_(algorithm),
        product_(scope.cuda_context, describe(scope, is_fused)) {
    if (is_fused && function_ == ActivationFunction::relu) function_ = ActivationFunction::linear;
    needs_epilogue_ = bias_ != nullptr || function_ != ActivationFunction::linear;
  }

  [[nodiscard]] static MatmulProblem describe(const KernelScope& scope, bool is_fused) {
    const auto [rows, features, units] = scope.product();
    MatmulProblem product{.shape = {.m = units,
                                    .n = rows,
                                    .k = features,
                                    .stride_a = units,
                                    .stride_b = features,
                                    .stride_d = units,
                                    .input = scope.input().type,
                                    .output = scope.output().type},
                          .operands = {.a = kernel_of(scope),
                                       .b = scope.value<void>(scope.operation.input),
                                       .d = scope.value<void>(scope.operation.output)}};
    if (!is_fused) return product;
    const bool relu = scope.operation.activation == ActivationFunction::relu;
    if (scope.has_bias()) {
      // A fused bias has the output's type. Keras casts it to that type in mixed precision, too.
      const bool low = scope.output().type == ElementType::bfloat16;
      const int parameter = scope.operation.parameter + 1;
      product.operands.bias = low ? static_cast<void*>(scope.low_precision(parameter)) : scope.weights(parameter);
      product.operands.epilogue = relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    } else if (relu) {
      product.operands.epilogue = CUBLASLT_EPILOGUE_RELU;
    }
    return product;
  }

  void enqueue(const StepContext& /*context*/) override {
    product_.enqueue(algorithm_);
    if (needs_epilogue_) add_bias_activation(stream_, type_, output_, type_, output_, bias_, count_, units_, function_);
  }
  [[nodiscard]] std::string implementation() const override {
    return product_.name_of(algorithm_) + (needs_epilogue_ ? ", custom epilogue" : "");
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
  cublasLtMatmulAlgo_t algorithm_;
  Matmul product_;
};

/// Of one chunk of input features. The first chunk's includes the bias gradient.
class DenseWeightsGradient final : public Kernel {
 public:
  DenseWeightsGradient(const KernelScope& scope, bool is_fused, const cublasLtMatmulAlgo_t& algorithm)
      : bias_gradient_(scope, is_fused ? nullptr : bias_gradient_of(scope)),
        algorithm_(algorithm),
        product_(scope.cuda_context, describe(scope, is_fused)) {}

  [[nodiscard]] static MatmulProblem describe(const KernelScope& scope, bool is_fused) {
    const auto [rows, features, units] = scope.product();
    const auto [begin, end] = scope.operation.input_features;
    const auto type = scope.input().type;
    MatmulProblem product{
        .shape = {.m = units,
                  .n = static_cast<std::int64_t>(end - begin),
                  .k = rows,
                  .transpose_b = true,
                  .stride_a = units,
                  .stride_b = features,
                  .stride_d = units,
                  .input = type,
                  .output = ElementType::float32},
        .operands = {.a = scope.output_gradient(),
                     .b = scope.value<std::byte>(scope.operation.input) + begin * size_of(type),
                     .d = scope.weights_gradient(scope.operation.parameter) + begin * static_cast<std::size_t>(units)}};
    if (is_fused && bias_gradient_of(scope) != nullptr) {
      product.operands.epilogue = CUBLASLT_EPILOGUE_BGRADA;
      product.operands.bias = bias_gradient_of(scope);
    }
    return product;
  }

  void enqueue(const StepContext& /*context*/) override {
    bias_gradient_.enqueue();
    product_.enqueue(algorithm_);
  }
  [[nodiscard]] std::string implementation() const override { return product_.name_of(algorithm_); }

 private:
  [[nodiscard]] static float* bias_gradient_of(const KernelScope& scope) {
    const bool is_first = scope.operation.input_features.begin == 0;
    return is_first && scope.has_bias() ? scope.weights_gradient(scope.operation.parameter + 1) : nullptr;
  }

  BiasGradient bias_gradient_;
  cublasLtMatmulAlgo_t algorithm_;
  Matmul product_;
};

/// Of one chunk of input features.
class DenseInputGradient final : public Kernel {
 public:
  DenseInputGradient(const KernelScope& scope, bool /*is_fused*/, const cublasLtMatmulAlgo_t& algorithm)
      : stream_(scope.cuda_context.stream()),
        type_(scope.input().type),
        rows_(static_cast<std::size_t>(scope.product().rows)),
        features_(static_cast<std::size_t>(scope.product().features)),
        chunk_(scope.operation.input_features),
        function_(scope.operation.input_activation),
        input_(scope.value<void>(scope.operation.input)),
        input_gradient_(scope.gradient<void>(scope.operation.input)),
        algorithm_(algorithm),
        product_(scope.cuda_context, describe(scope, false)) {}

  [[nodiscard]] static MatmulProblem describe(const KernelScope& scope, bool /*is_fused*/) {
    const auto [rows, features, units] = scope.product();
    const auto [begin, end] = scope.operation.input_features;
    const auto type = scope.input().type;
    return {.shape = {.m = static_cast<std::int64_t>(end - begin),
                      .n = rows,
                      .k = units,
                      .transpose_a = true,
                      .stride_a = units,
                      .stride_b = units,
                      .stride_d = features,
                      .input = type,
                      .output = type},
            .operands = {.a = kernel_of(scope) + begin * static_cast<std::size_t>(units) * size_of(type),
                         .b = scope.output_gradient(),
                         .d = scope.gradient<std::byte>(scope.operation.input) + begin * size_of(type)}};
  }

  void enqueue(const StepContext& /*context*/) override {
    product_.enqueue(algorithm_);
    apply_activation_gradient(stream_, type_, input_, input_gradient_, rows_, features_, chunk_.begin, chunk_.size(),
                              function_);
  }
  [[nodiscard]] std::string implementation() const override { return product_.name_of(algorithm_); }

 private:
  cudaStream_t stream_;
  ElementType type_;
  std::size_t rows_, features_;
  Range chunk_;
  ActivationFunction function_;
  const void* input_;
  void* input_gradient_;
  cublasLtMatmulAlgo_t algorithm_;
  Matmul product_;
};

template <typename DenseKernel>
std::vector<Candidate> candidates(const KernelScope& scope) {
  std::vector<Candidate> all;
  for (const bool is_fused : {true, false}) {
    const MatmulProblem product = DenseKernel::describe(scope, is_fused);
    const cublasLtEpilogue_t epilogue = product.operands.epilogue;
    if (is_fused && epilogue == CUBLASLT_EPILOGUE_DEFAULT) continue;
    for (const MatmulAlgorithm& proposed : Matmul(scope.cuda_context, product).algorithms()) {
      const auto make = [is_fused, algorithm = proposed.algorithm](const KernelScope& its) -> std::unique_ptr<Kernel> {
        return std::make_unique<DenseKernel>(its, is_fused, algorithm);
      };
      all.push_back(
          {.make = make, .workspace = proposed.workspace, .is_deterministic = epilogue != CUBLASLT_EPILOGUE_BGRADA});
    }
  }
  return all;
}

/// The product with all that may be fused, and what is computed after it.
template <typename DenseKernel>
ProblemKey problem_of(const KernelScope& scope) {
  ProblemKey problem = Matmul(scope.cuda_context, DenseKernel::describe(scope, true)).problem();
  problem.push_back(static_cast<std::int64_t>(scope.operation.activation.kind));
  problem.push_back(static_cast<std::int64_t>(scope.operation.input_activation.kind));
  return problem;
}

template <typename DenseKernel>
std::unique_ptr<Kernel> make_product(const KernelScope& scope) {
  return make_fastest(scope, problem_of<DenseKernel>(scope), [&] { return candidates<DenseKernel>(scope); });
}

}  // namespace

std::unique_ptr<Kernel> make_dense(const KernelScope& scope) { return make_product<DenseForward>(scope); }

std::unique_ptr<Kernel> make_dense_backward(const KernelScope& scope) {
  return std::make_unique<ProductBackward>(scope, make_product<DenseWeightsGradient>, make_product<DenseInputGradient>);
}

}  // namespace lockstep::cuda
