// Convolutions: cuDNN's algorithms, with and without a fused epilogue, and Lockstep's own kernels, which are timed
// against each other. cuDNN's legacy convolution functions are used instead of its graph API: every version since 7 has
// them, and they need no graph for each of the three products.
#include "backend/cuda/convolution_geometry.hpp"
#include "backend/cuda/convolution_kernels.hpp"
#include "backend/cuda/product_backward.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace lockstep::cuda {

namespace {

using ActivationDescriptor = UniqueHandle<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor>;

constexpr int max_algorithms = 16;
constexpr float one = 1;
constexpr float zero = 0;

/// An algorithm of cuDNN for one of the three products.
template <typename Algorithm>
struct CudnnAlgorithm {
  Algorithm algorithm{};
  cudnnMathType_t math{};
  std::size_t workspace = 0;
  bool is_deterministic = false;
};

/// cuDNN's algorithms that fit in the workspace, in the order of its estimates. cuDNN returns pairs
/// of algorithm and math type, including the default math type, which may use TF32. If TF32 is not allowed, every
/// algorithm runs with FMA math, and those that are listed with it come first. `list` is cudnnGet..._v7.
template <typename Performance, typename List>
auto cudnn_algorithms(const KernelScope& scope, const ConvolutionGeometry& geometry, List list) {
  std::array<Performance, max_algorithms> all{};
  int found = 0;
  if (list(max_algorithms, &found, all.data()) != CUDNN_STATUS_SUCCESS) found = 0;
  const bool strict = geometry.math() == CUDNN_FMA_MATH;
  const std::span listed = std::span(all).first(static_cast<std::size_t>(found));
  std::stable_partition(listed.begin(), listed.end(),
                        [&](const Performance& one) { return !strict || one.mathType == CUDNN_FMA_MATH; });
  std::vector<CudnnAlgorithm<decltype(Performance::algo)>> algorithms;
  for (const Performance& one : listed) {
    const cudnnMathType_t math = strict ? CUDNN_FMA_MATH : one.mathType;
    const bool is_known = std::ranges::any_of(
        algorithms, [&](const auto& other) { return other.algorithm == one.algo && other.math == math; });
    const bool fits = one.memory <= scope.cuda_context.workspace().size();
    if (one.status != CUDNN_STATUS_SUCCESS || !fits || is_known) continue;
    algorithms.push_back({one.algo, math, one.memory, one.determinism == CUDNN_DETERMINISTIC});
  }
  return algorithms;
}

const void* kernel_of(const KernelScope& scope) {
  const int parameter = scope.operation.parameter;
  if (scope.input().type == ElementType::bfloat16) return scope.low_precision(parameter);
  return scope.weights(parameter);
}

/// The images that cuDNN reads: the input, or a copy of it padded with zeros.
class CudnnInput {
 public:
  CudnnInput(const KernelScope& scope, const ConvolutionGeometry& geometry)
      : stream_(scope.cuda_context.stream()),
        type_(geometry.type()),
        padding_(geometry.padding()),
        input_(scope.value<void>(scope.operation.input)) {
    if (geometry.needs_padding()) padded_ = geometry.make_padded_buffer();
  }

  void enqueue_padding() const {
    if (padded_.size() > 0) pad_images(stream_, type_, input_, padded_.data(), padding_);
  }
  [[nodiscard]] const void* images() const { return padded_.size() > 0 ? padded_.data() : input_; }

 private:
  cudaStream_t stream_;
  ElementType type_;
  PaddingSizes padding_;
  const void* input_;
  DeviceBuffer padded_;
};

class CudnnForward final : public Kernel {
 public:
  using Algorithm = CudnnAlgorithm<cudnnConvolutionFwdAlgo_t>;

  CudnnForward(const KernelScope& scope, const Algorithm& algorithm, bool is_fused)
      : cuda_context_(scope.cuda_context),
        geometry_(scope),
        algorithm_(algorithm.algorithm),
        is_fused_(is_fused),
        count_(scope.count(scope.output())),
        channels_(static_cast<std::size_t>(scope.output().channels)),
        output_type_(scope.output().type),
        function_(scope.operation.activation),
        bias_(bias_of(scope)),
        kernel_(kernel_of(scope)),
        input_(scope, geometry_),
        output_(scope.value<void>(scope.operation.output)),
        product_(output_) {
    geometry_.set_math(algorithm.math);
    if (output_type_ != geometry_.type()) {
      before_type_change_ = DeviceBuffer(count_ * size_of(geometry_.type()));
      product_ = before_type_change_.data();
    }
    if (is_fused_) describe_epilogue();
  }

  [[nodiscard]] static std::vector<Algorithm> algorithms(const KernelScope& scope) {
    const ConvolutionGeometry g(scope);
    return cudnn_algorithms<cudnnConvolutionFwdAlgoPerf_t>(scope, g, [&](int most, int* found, auto* all) {
      return cudnnGetConvolutionForwardAlgorithm_v7(scope.cuda_context.cudnn(), g.input(), g.filter(), g.convolution(),
                                                    g.output(), most, found, all);
    });
  }

  /// Whether cuDNN may compute bias and activation with the product. Only a run shows whether it does.
  [[nodiscard]] static bool is_fusable(const KernelScope& scope, const Algorithm& algorithm) {
    if (scope.input().type != ElementType::float32 || !scope.has_bias()) return false;
    if (scope.operation.activation == ActivationFunction::relu) return true;
    // cuDNN supports the identity activation only with this algorithm.
    return scope.operation.activation == ActivationFunction::linear &&
           algorithm.algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  }

  void enqueue(const StepContext& /*context*/) override {
    input_.enqueue_padding();
    if (is_fused_) return enqueue_fused();
    check(cudnnConvolutionForward(cuda_context_.cudnn(), &one, geometry_.input(), input_.images(), geometry_.filter(),
                                  kernel_, geometry_.convolution(), algorithm_, cuda_context_.workspace().data(),
                                  cuda_context_.workspace().size(), &zero, geometry_.output(), product_),
          "cudnnConvolutionForward");
    if (!needs_epilogue()) return;
    add_bias_activation(cuda_context_.stream(), geometry_.type(), product_, output_type_, output_, bias_, count_,
                        channels_, function_);
  }

  [[nodiscard]] std::string implementation() const override {
    return fmt::format("cudnn:{}{}", static_cast<int>(algorithm_),
                       is_fused_ ? "+bias+activation" : (needs_epilogue() ? ", custom epilogue" : ""));
  }

 private:
  [[nodiscard]] bool needs_epilogue() const {
    return bias_ != nullptr || function_ != ActivationFunction::linear || product_ != output_;
  }

  void describe_epilogue() {
    bias_descriptor_ = describe_images(ElementType::float32, 1, 1, 1, static_cast<std::int64_t>(channels_));
    activation_ = make_handle<ActivationDescriptor>(
        [](auto* handle) { check(cudnnCreateActivationDescriptor(handle), "cudnnCreateActivationDescriptor"); });
    const bool relu = function_ == ActivationFunction::relu;
    check(cudnnSetActivationDescriptor(activation_.get(), relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
                                       CUDNN_NOT_PROPAGATE_NAN, 0.0),
          "cudnnSetActivationDescriptor");
  }

  void enqueue_fused() const {
    check(cudnnConvolutionBiasActivationForward(cuda_context_.cudnn(), &one, geometry_.input(), input_.images(),
                                                geometry_.filter(), kernel_, geometry_.convolution(), algorithm_,
                                                cuda_context_.workspace().data(), cuda_context_.workspace().size(),
                                                &zero, geometry_.output(), product_, bias_descriptor_.get(), bias_,
                                                activation_.get(), geometry_.output(), product_),
          "cudnnConvolutionBiasActivationForward");
  }

  const CudaContext& cuda_context_;
  ConvolutionGeometry geometry_;
  cudnnConvolutionFwdAlgo_t algorithm_;
  bool is_fused_;
  std::size_t count_;
  std::size_t channels_;
  ElementType output_type_;
  ActivationFunction function_;
  const float* bias_;
  const void* kernel_;
  CudnnInput input_;
  void* output_;
  void* product_;  ///< the output before conversion to its type
  DeviceBuffer before_type_change_;
  TensorDescriptor bias_descriptor_;
  ActivationDescriptor activation_;
};

class CudnnWeightsGradient final : public Kernel {
 public:
  using Algorithm = CudnnAlgorithm<cudnnConvolutionBwdFilterAlgo_t>;

  CudnnWeightsGradient(const KernelScope& scope, const Algorithm& algorithm)
      : cuda_context_(scope.cuda_context),
        geometry_(scope),
        algorithm_(algorithm.algorithm),
        bias_gradient_(scope, bias_gradient_of(scope)),
        input_(scope, geometry_),
        output_gradient_(scope.output_gradient()),
        count_(scope.graph.parameters[scope.operation.parameter].storage),
        gradient_(scope.weights_gradient(scope.operation.parameter)),
        product_(gradient_) {
    geometry_.set_math(algorithm.math);
    if (geometry_.type() == ElementType::float32) return;
    low_precision_ = DeviceBuffer(count_ * sizeof(BFloat16));  // cuDNN computes the gradient in the input's type
    product_ = low_precision_.data();
  }

  [[nodiscard]] static std::vector<Algorithm> algorithms(const KernelScope& scope) {
    const ConvolutionGeometry g(scope);
    return cudnn_algorithms<cudnnConvolutionBwdFilterAlgoPerf_t>(scope, g, [&](int most, int* found, auto* all) {
      return cudnnGetConvolutionBackwardFilterAlgorithm_v7(scope.cuda_context.cudnn(), g.input(), g.output(),
                                                           g.convolution(), g.filter(), most, found, all);
    });
  }

  void enqueue(const StepContext& /*context*/) override {
    input_.enqueue_padding();
    bias_gradient_.enqueue();
    check(cudnnConvolutionBackwardFilter(cuda_context_.cudnn(), &one, geometry_.input(), input_.images(),
                                         geometry_.output(), output_gradient_, geometry_.convolution(), algorithm_,
                                         cuda_context_.workspace().data(), cuda_context_.workspace().size(), &zero,
                                         geometry_.filter(), product_),
          "cudnnConvolutionBackwardFilter");
    if (product_ == gradient_) return;
    add_bias_activation(cuda_context_.stream(), geometry_.type(), product_, ElementType::float32, gradient_, nullptr,
                        count_, 1, ActivationFunction::linear);
  }

  [[nodiscard]] std::string implementation() const override {
    return fmt::format("cudnn:{}", static_cast<int>(algorithm_));
  }

 private:
  const CudaContext& cuda_context_;
  ConvolutionGeometry geometry_;
  cudnnConvolutionBwdFilterAlgo_t algorithm_;
  BiasGradient bias_gradient_;
  CudnnInput input_;
  const void* output_gradient_;
  std::size_t count_;
  float* gradient_;
  void* product_;  ///< the gradient before conversion to float32
  DeviceBuffer low_precision_;
};

class CudnnInputGradient final : public Kernel {
 public:
  using Algorithm = CudnnAlgorithm<cudnnConvolutionBwdDataAlgo_t>;

  CudnnInputGradient(const KernelScope& scope, const Algorithm& algorithm)
      : cuda_context_(scope.cuda_context),
        geometry_(scope),
        algorithm_(algorithm.algorithm),
        num_examples_(scope.num_examples),
        features_(static_cast<std::size_t>(scope.input().elements())),
        function_(scope.operation.input_activation),
        kernel_(kernel_of(scope)),
        output_gradient_(scope.output_gradient()),
        input_(scope.value<void>(scope.operation.input)),
        gradient_(scope.gradient<void>(scope.operation.input)),
        product_(gradient_) {
    geometry_.set_math(algorithm.math);
    if (!geometry_.needs_padding()) return;
    padded_ = geometry_.make_padded_buffer();
    product_ = padded_.data();
  }

  [[nodiscard]] static std::vector<Algorithm> algorithms(const KernelScope& scope) {
    const ConvolutionGeometry g(scope);
    return cudnn_algorithms<cudnnConvolutionBwdDataAlgoPerf_t>(scope, g, [&](int most, int* found, auto* all) {
      return cudnnGetConvolutionBackwardDataAlgorithm_v7(scope.cuda_context.cudnn(), g.filter(), g.output(),
                                                         g.convolution(), g.input(), most, found, all);
    });
  }

  void enqueue(const StepContext& /*context*/) override {
    check(cudnnConvolutionBackwardData(cuda_context_.cudnn(), &one, geometry_.filter(), kernel_, geometry_.output(),
                                       output_gradient_, geometry_.convolution(), algorithm_,
                                       cuda_context_.workspace().data(), cuda_context_.workspace().size(), &zero,
                                       geometry_.input(), product_),
          "cudnnConvolutionBackwardData");
    cudaStream_t stream = cuda_context_.stream();
    if (product_ != gradient_) crop_images(stream, geometry_.type(), product_, gradient_, geometry_.padding());
    apply_activation_gradient(stream, geometry_.type(), input_, gradient_, num_examples_, features_, 0, features_,
                              function_);
  }

  [[nodiscard]] std::string implementation() const override {
    return fmt::format("cudnn:{}", static_cast<int>(algorithm_));
  }

 private:
  const CudaContext& cuda_context_;
  ConvolutionGeometry geometry_;
  cudnnConvolutionBwdDataAlgo_t algorithm_;
  std::size_t num_examples_;
  std::size_t features_;
  ActivationFunction function_;
  const void* kernel_;
  const void* output_gradient_;
  const void* input_;
  void* gradient_;
  void* product_;  ///< the gradient of the padded images
  DeviceBuffer padded_;
};

template <typename Algorithm>
Candidate candidate_of(const Algorithm& algorithm, std::function<std::unique_ptr<Kernel>(const KernelScope&)> make) {
  return {.make = std::move(make), .workspace = algorithm.workspace, .is_deterministic = algorithm.is_deterministic};
}

/// cuDNN's candidates for a product: first those with a fused epilogue.
template <typename CudnnKernel>
std::vector<Candidate> cudnn_candidates(const KernelScope& scope) {
  const auto algorithms = CudnnKernel::algorithms(scope);
  std::vector<Candidate> all;
  if constexpr (std::is_same_v<CudnnKernel, CudnnForward>) {
    for (const bool is_fused : {true, false}) {
      for (const auto& algorithm : algorithms) {
        if (is_fused && !CudnnForward::is_fusable(scope, algorithm)) continue;
        all.push_back(candidate_of(algorithm, [algorithm, is_fused](const KernelScope& its) {
          return std::make_unique<CudnnForward>(its, algorithm, is_fused);
        }));
      }
    }
  } else {
    for (const auto& algorithm : algorithms) {
      all.push_back(candidate_of(
          algorithm, [algorithm](const KernelScope& its) { return std::make_unique<CudnnKernel>(its, algorithm); }));
    }
  }
  return all;
}

enum class Product { forward, weights, input };

ProblemKey problem_of(const KernelScope& scope, Product product) {
  ProblemKey problem = ConvolutionGeometry(scope).problem();
  const Operation& operation = scope.operation;
  for (const std::int64_t part :
       {static_cast<std::int64_t>(product), static_cast<std::int64_t>(scope.has_bias()),
        static_cast<std::int64_t>(scope.output().type), static_cast<std::int64_t>(operation.activation.kind),
        static_cast<std::int64_t>(operation.input_activation.kind),
        static_cast<std::int64_t>(operation.derives_activation)}) {
    problem.push_back(part);
  }
  return problem;
}

using Make = std::unique_ptr<Kernel> (*)(const KernelScope&);

/// The fastest of cuDNN's kernels and Lockstep's own. `make_one_channel`: null if there is none for the product.
template <typename CudnnKernel>
std::unique_ptr<Kernel> make_product(const KernelScope& scope, Product product, Make make_direct,
                                     Make make_one_channel = nullptr) {
  if (scope.cuda_context.rules().direct_convolutions) return make_direct(scope);
  return make_fastest(scope, problem_of(scope, product), [&] {
    std::vector<Candidate> all = cudnn_candidates<CudnnKernel>(scope);
    if (make_one_channel != nullptr && is_one_channel(scope)) all.push_back({.make = make_one_channel});
    all.push_back(
        {.make = make_direct,
         .last_resort = fmt::format("cuDNN has no algorithm for layer '{}' {}; using a slow kernel instead",
                                    scope.layer().name, product == Product::forward ? "forward" : "backward")});
    return all;
  });
}

std::unique_ptr<Kernel> make_weights_gradient(const KernelScope& scope) {
  return make_product<CudnnWeightsGradient>(scope, Product::weights, make_direct_weights_gradient,
                                            make_one_channel_weights_gradient);
}

std::unique_ptr<Kernel> make_input_gradient(const KernelScope& scope) {
  return make_product<CudnnInputGradient>(scope, Product::input, make_direct_input_gradient);
}

}  // namespace

std::unique_ptr<Kernel> make_convolution(const KernelScope& scope) {
  if (scope.operation.groups > 1 || scope.operation.is_transposed) refuse_layer(scope);
  return make_product<CudnnForward>(scope, Product::forward, make_direct_convolution, make_one_channel_convolution);
}

std::unique_ptr<Kernel> make_convolution_backward(const KernelScope& scope) {
  return std::make_unique<ProductBackward>(scope, make_weights_gradient, make_input_gradient);
}

}  // namespace lockstep::cuda
