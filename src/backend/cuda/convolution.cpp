// Convolution on cuDNN, images and kernels with the channels last. cuDNN's convolution calls are used, not its graph
// API: they are in every cuDNN since 7 and need no description of a graph for each of three products.
#include "backend/cuda/convolution_geometry.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>

namespace lockstep::cuda {

namespace {

using ActivationDescriptor = Owned<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor>;

enum class Product { forward, weights, data };

constexpr int most_algorithms = 16;
constexpr float one = 1;
constexpr float zero = 0;

/// cuDNN has no algorithm for a convolution.
struct NoAlgorithm {};

/// The fastest algorithm, by cuDNN's clock or, in deterministic runs, by its rules, that the workspace suffices for and
/// that runs: `run` tries one. cuDNN answers with pairs of algorithm and arithmetic, and measures the default
/// arithmetic besides the one asked for; where TF32 is not allowed, all run without it, those first that were measured
/// so.
template <typename Performance, typename Find, typename Run>
ConvolutionChoice choose(const KernelScope& scope, const ConvolutionGeometry& geometry, Find find, Run run) {
  std::array<Performance, most_algorithms> all{};
  int found = 0;
  if (find(most_algorithms, &found, all.data()) != CUDNN_STATUS_SUCCESS) return {};
  const bool deterministic = scope.tools.rules().deterministic;
  const bool strict = geometry.math() == CUDNN_FMA_MATH;
  const std::span candidates = std::span(all).first(static_cast<std::size_t>(found));
  std::stable_partition(candidates.begin(), candidates.end(),
                        [&](const Performance& one) { return !strict || one.mathType == CUDNN_FMA_MATH; });
  for (const Performance& candidate : candidates) {
    const bool works = candidate.status == CUDNN_STATUS_SUCCESS;
    const bool fits = candidate.memory <= scope.tools.workspace_size();
    if (!works || !fits || (deterministic && candidate.determinism != CUDNN_DETERMINISTIC)) continue;
    const ConvolutionChoice choice{candidate.algo, strict ? CUDNN_FMA_MATH : candidate.mathType};
    if (run(choice) == CUDNN_STATUS_SUCCESS) return choice;
  }
  return {};
}

/// The same out of memory, where the problem was met before. Throws NoAlgorithm where there is none.
template <typename Performance, typename Find, typename Run>
void choose_once(const KernelScope& scope, const ConvolutionGeometry& geometry, Product product, Find find, Run run) {
  Problem problem = geometry.problem();
  problem.push_back(static_cast<std::int64_t>(product));
  const ConvolutionChoice& choice =
      scope.tools.convolutions().of(problem, [&] { return choose<Performance>(scope, geometry, find, run); });
  if (choice.algorithm < 0 || run(choice) != CUDNN_STATUS_SUCCESS) throw NoAlgorithm{};
}

const void* kernel_of(const KernelScope& scope) {
  const int parameter = scope.operation.parameter;
  if (scope.input().type == ElementType::bfloat16) return scope.low_precision(parameter);
  return scope.weights(parameter);
}

class ConvolutionForward final : public Kernel {
 public:
  explicit ConvolutionForward(const KernelScope& scope)
      : tools_(scope.tools),
        geometry_(scope),
        count_(scope.count(scope.output())),
        channels_(static_cast<std::size_t>(scope.output().channels)),
        output_type_(scope.output().type),
        function_(scope.operation.activation),
        bias_(scope.has_bias() ? scope.weights(scope.operation.parameter + 1) : nullptr),
        kernel_(kernel_of(scope)),
        input_(scope.value<void>(scope.operation.input)),
        output_(scope.value<void>(scope.operation.output)),
        product_(output_) {
    unframed_ = input_;
    if (geometry_.framed()) {
      frame_ = geometry_.make_frame();
      input_ = frame_.data();
    }
    if (output_type_ != geometry_.type()) {
      before_type_change_ = DeviceBuffer(count_ * size_of(geometry_.type()));
      product_ = before_type_change_.data();
    }
    choose_algorithm(scope);
    prepare_fusion();
  }

  void enqueue(const StepContext& /*context*/) override {
    if (geometry_.framed())
      put_in_frame(tools_.stream(), geometry_.type(), unframed_, frame_.data(), geometry_.frame());
    if (fused_) {
      check(enqueue_fused(), "cudnnConvolutionBiasActivationForward");
    } else {
      check(enqueue_plain(), "cudnnConvolutionForward");
    }
    if (finishes_) {
      finish(tools_.stream(), geometry_.type(), product_, output_type_, output_, bias_, count_, channels_, function_);
    }
  }

  [[nodiscard]] std::string implementation() const override {
    return "cudnn:" + std::to_string(static_cast<int>(algorithm_)) + (fused_ ? "+bias+activation" : "") +
           (finishes_ ? ", own finish" : "");
  }

 private:
  void choose_algorithm(const KernelScope& scope) {
    const ConvolutionGeometry& g = geometry_;
    const auto find = [&](int most, int* found, cudnnConvolutionFwdAlgoPerf_t* all) {
      if (tools_.rules().deterministic) {
        return cudnnGetConvolutionForwardAlgorithm_v7(tools_.cudnn(), g.input(), g.filter(), g.convolution(),
                                                      g.output(), most, found, all);
      }
      return cudnnFindConvolutionForwardAlgorithmEx(tools_.cudnn(), g.input(), input_, g.filter(), kernel_,
                                                    g.convolution(), g.output(), product_, most, found, all,
                                                    tools_.workspace(), tools_.workspace_size());
    };
    choose_once<cudnnConvolutionFwdAlgoPerf_t>(scope, geometry_, Product::forward, find,
                                               [&](const ConvolutionChoice& choice) {
                                                 algorithm_ = static_cast<cudnnConvolutionFwdAlgo_t>(choice.algorithm);
                                                 geometry_.set_math(choice.math);
                                                 return enqueue_plain();
                                               });
  }

  /// Whether cuDNN has bias and activation in one kernel with the algorithm is known only by trying.
  void prepare_fusion() {
    const bool relu = function_ == ActivationFunction::relu;
    const bool fusable = geometry_.type() == ElementType::float32 && bias_ != nullptr &&
                         (relu || function_ == ActivationFunction::linear);
    if (fusable) {
      // Without an activation only this algorithm is allowed.
      if (!relu && algorithm_ != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) return settle();
      bias_descriptor_ = describe_images(ElementType::float32, 1, 1, 1, static_cast<std::int64_t>(channels_));
      activation_ = make_owned<ActivationDescriptor>(
          [](auto* handle) { check(cudnnCreateActivationDescriptor(handle), "cudnnCreateActivationDescriptor"); });
      check(cudnnSetActivationDescriptor(activation_.get(), relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
                                         CUDNN_NOT_PROPAGATE_NAN, 0.0),
            "cudnnSetActivationDescriptor");
      fused_bias_ = bias_;
      fused_ = enqueue_fused() == CUDNN_STATUS_SUCCESS;
      if (fused_) {
        bias_ = nullptr;
        function_ = ActivationFunction::linear;
      }
    }
    settle();
  }

  void settle() { finishes_ = bias_ != nullptr || function_ != ActivationFunction::linear || product_ != output_; }

  [[nodiscard]] cudnnStatus_t enqueue_plain() const {
    return cudnnConvolutionForward(tools_.cudnn(), &one, geometry_.input(), input_, geometry_.filter(), kernel_,
                                   geometry_.convolution(), algorithm_, tools_.workspace(), tools_.workspace_size(),
                                   &zero, geometry_.output(), product_);
  }

  [[nodiscard]] cudnnStatus_t enqueue_fused() const {
    return cudnnConvolutionBiasActivationForward(
        tools_.cudnn(), &one, geometry_.input(), input_, geometry_.filter(), kernel_, geometry_.convolution(),
        algorithm_, tools_.workspace(), tools_.workspace_size(), &zero, geometry_.output(), product_,
        bias_descriptor_.get(), fused_bias_, activation_.get(), geometry_.output(), product_);
  }

  const Tools& tools_;
  ConvolutionGeometry geometry_;
  std::size_t count_;
  std::size_t channels_;
  ElementType output_type_;
  ActivationFunction function_;  ///< what is left of it for a kernel of ours
  const float* bias_;            ///< likewise
  const float* fused_bias_ = nullptr;
  const void* kernel_;
  void* unframed_ = nullptr;
  void* input_;  ///< framed where that is needed
  void* output_;
  void* product_;  ///< the output, before a change of type
  DeviceBuffer frame_;
  DeviceBuffer before_type_change_;
  TensorDescriptor bias_descriptor_;
  ActivationDescriptor activation_;
  cudnnConvolutionFwdAlgo_t algorithm_{};
  bool fused_ = false;
  bool finishes_ = false;
};

class ConvolutionBackward final : public Kernel {
 public:
  explicit ConvolutionBackward(const KernelScope& scope)
      : tools_(scope.tools),
        geometry_(scope),
        pixels_(scope.rows * static_cast<std::size_t>(scope.output().height * scope.output().width)),
        channels_(static_cast<std::size_t>(scope.output().channels)),
        rows_(scope.rows),
        features_(static_cast<std::size_t>(scope.input().elements())),
        input_function_(scope.operation.input_activation),
        scratch_(scope.sum_scratch),
        kernel_(kernel_of(scope)),
        kernel_count_(scope.graph.parameters[scope.operation.parameter].storage),
        kernel_gradient_(scope.weights_gradient(scope.operation.parameter)),
        bias_gradient_(scope.has_bias() ? scope.weights_gradient(scope.operation.parameter + 1) : nullptr),
        unframed_(scope.value<void>(scope.operation.input)),
        input_(unframed_),
        output_gradient_(scope.gradient<void>(scope.operation.output)),
        kernel_product_(kernel_gradient_) {
    if (geometry_.framed()) {
      frame_ = geometry_.make_frame();
      input_ = frame_.data();
    }
    if (scope.output().type != geometry_.type()) {
      converted_ = DeviceBuffer(pixels_ * channels_ * size_of(geometry_.type()));
      convert_from_ = output_gradient_;
      output_gradient_ = converted_.data();
    }
    if (geometry_.type() == ElementType::bfloat16) {  // cuDNN gives the gradient in the inputs' type
      low_kernel_gradient_ = DeviceBuffer(kernel_count_ * sizeof(BFloat16));
      kernel_product_ = low_kernel_gradient_.data();
    }
    choose_for_weights(scope);
    if (!scope.operation.input_gradient) return;
    input_gradient_ = scope.gradient<void>(scope.operation.input);
    data_product_ = input_gradient_;
    if (geometry_.framed()) {
      gradient_frame_ = geometry_.make_frame();
      data_product_ = gradient_frame_.data();
    }
    choose_for_data(scope);
  }

  void enqueue(const StepContext& /*context*/) override {
    cudaStream_t stream = tools_.stream();
    const ElementType type = geometry_.type();
    if (convert_from_ != nullptr) {
      finish(stream, ElementType::float32, convert_from_, type, output_gradient_, nullptr, pixels_ * channels_,
             channels_, ActivationFunction::linear);
    }
    if (geometry_.framed()) put_in_frame(stream, type, unframed_, frame_.data(), geometry_.frame());
    if (bias_gradient_ != nullptr) {
      sum_bias(stream, type, output_gradient_, pixels_, channels_, scratch_, bias_gradient_);
    }
    check(enqueue_weights(), "cudnnConvolutionBackwardFilter");
    if (kernel_product_ != kernel_gradient_) {
      finish(stream, type, kernel_product_, ElementType::float32, kernel_gradient_, nullptr, kernel_count_, 1,
             ActivationFunction::linear);
    }
    if (input_gradient_ == nullptr) return;
    check(enqueue_data(), "cudnnConvolutionBackwardData");
    if (geometry_.framed()) take_out_of_frame(stream, type, data_product_, input_gradient_, geometry_.frame());
    pass_back(stream, type, unframed_, input_gradient_, rows_, features_, 0, features_, input_function_);
  }

  [[nodiscard]] std::string implementation() const override {
    std::string names = "cudnn:" + std::to_string(static_cast<int>(weights_algorithm_));
    if (input_gradient_ != nullptr) names += ", cudnn:" + std::to_string(static_cast<int>(data_algorithm_));
    return names;
  }

 private:
  [[nodiscard]] cudnnStatus_t enqueue_weights() {
    geometry_.set_math(weights_math_);
    return cudnnConvolutionBackwardFilter(
        tools_.cudnn(), &one, geometry_.input(), input_, geometry_.output(), output_gradient_, geometry_.convolution(),
        weights_algorithm_, tools_.workspace(), tools_.workspace_size(), &zero, geometry_.filter(), kernel_product_);
  }

  [[nodiscard]] cudnnStatus_t enqueue_data() {
    geometry_.set_math(data_math_);
    return cudnnConvolutionBackwardData(tools_.cudnn(), &one, geometry_.filter(), kernel_, geometry_.output(),
                                        output_gradient_, geometry_.convolution(), data_algorithm_, tools_.workspace(),
                                        tools_.workspace_size(), &zero, geometry_.input(), data_product_);
  }

  void choose_for_weights(const KernelScope& scope) {
    const ConvolutionGeometry& g = geometry_;
    const auto find = [&](int most, int* found, cudnnConvolutionBwdFilterAlgoPerf_t* all) {
      if (tools_.rules().deterministic) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(tools_.cudnn(), g.input(), g.output(), g.convolution(),
                                                             g.filter(), most, found, all);
      }
      return cudnnFindConvolutionBackwardFilterAlgorithmEx(
          tools_.cudnn(), g.input(), input_, g.output(), output_gradient_, g.convolution(), g.filter(), kernel_product_,
          most, found, all, tools_.workspace(), tools_.workspace_size());
    };
    choose_once<cudnnConvolutionBwdFilterAlgoPerf_t>(
        scope, geometry_, Product::weights, find, [&](const ConvolutionChoice& choice) {
          weights_algorithm_ = static_cast<cudnnConvolutionBwdFilterAlgo_t>(choice.algorithm);
          weights_math_ = choice.math;
          return enqueue_weights();
        });
  }

  void choose_for_data(const KernelScope& scope) {
    const ConvolutionGeometry& g = geometry_;
    geometry_.set_math(g.math());
    const auto find = [&](int most, int* found, cudnnConvolutionBwdDataAlgoPerf_t* all) {
      if (tools_.rules().deterministic) {
        return cudnnGetConvolutionBackwardDataAlgorithm_v7(tools_.cudnn(), g.filter(), g.output(), g.convolution(),
                                                           g.input(), most, found, all);
      }
      return cudnnFindConvolutionBackwardDataAlgorithmEx(tools_.cudnn(), g.filter(), kernel_, g.output(),
                                                         output_gradient_, g.convolution(), g.input(), data_product_,
                                                         most, found, all, tools_.workspace(), tools_.workspace_size());
    };
    choose_once<cudnnConvolutionBwdDataAlgoPerf_t>(
        scope, geometry_, Product::data, find, [&](const ConvolutionChoice& choice) {
          data_algorithm_ = static_cast<cudnnConvolutionBwdDataAlgo_t>(choice.algorithm);
          data_math_ = choice.math;
          return enqueue_data();
        });
  }

  const Tools& tools_;
  ConvolutionGeometry geometry_;
  std::size_t pixels_;
  std::size_t channels_;
  std::size_t rows_;
  std::size_t features_;
  ActivationFunction input_function_;
  std::byte* scratch_;
  const void* kernel_;
  std::size_t kernel_count_;
  float* kernel_gradient_;
  float* bias_gradient_;
  void* unframed_;
  void* input_;
  void* output_gradient_;
  void* kernel_product_;  ///< the kernel's gradient, before a change of type
  const void* convert_from_ = nullptr;
  DeviceBuffer frame_;
  DeviceBuffer converted_;
  DeviceBuffer low_kernel_gradient_;
  void* input_gradient_ = nullptr;
  void* data_product_ = nullptr;
  DeviceBuffer gradient_frame_;
  cudnnConvolutionBwdFilterAlgo_t weights_algorithm_{};
  cudnnConvolutionBwdDataAlgo_t data_algorithm_{};
  cudnnMathType_t weights_math_{};
  cudnnMathType_t data_math_{};
};

}  // namespace

std::unique_ptr<Kernel> make_convolution(const KernelScope& scope) {
  if (scope.tools.rules().direct_convolutions) return make_direct_convolution(scope);
  try {
    return std::make_unique<ConvolutionForward>(scope);
  } catch (const NoAlgorithm&) {
    log_warning("cuDNN has no algorithm for layer '" + scope.layer().name + "' forward: a slow one is used");
    return make_direct_convolution(scope);
  }
}

std::unique_ptr<Kernel> make_convolution_backward(const KernelScope& scope) {
  if (scope.tools.rules().direct_convolutions) return make_direct_convolution_backward(scope);
  try {
    return std::make_unique<ConvolutionBackward>(scope);
  } catch (const NoAlgorithm&) {
    log_warning("cuDNN has no algorithm for layer '" + scope.layer().name + "' backward: a slow one is used");
    return make_direct_convolution_backward(scope);
  }
}

}  // namespace lockstep::cuda
