// Convolution on cuDNN, in NHWC layout. Uses cuDNN's legacy convolution functions instead of its graph API: every
// version since 7 has them, and they need no graph for each of the three products.
#include "backend/cuda/convolution_geometry.hpp"
#include "core/log.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>

namespace lockstep::cuda {

namespace {

using ActivationDescriptor = UniqueHandle<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor>;

enum class Product { forward, weights, data };

constexpr int max_algorithms = 16;
constexpr float one = 1;
constexpr float zero = 0;

/// Thrown if cuDNN has no algorithm for a convolution.
struct NoAlgorithmFound {};

/// Returns the fastest algorithm that fits in the workspace and that `run` executes successfully. The order is cuDNN's:
/// measured times, or heuristics in deterministic runs. cuDNN returns pairs of algorithm and math type, including the
/// default math type, which may use TF32. If TF32 is not allowed, every algorithm runs with FMA math, and those that
/// were measured with it are tried first.
template <typename Performance, typename Find, typename Run>
CudnnConvolutionAlgorithm choose(const KernelScope& scope, const ConvolutionGeometry& geometry, Find find, Run run) {
  std::array<Performance, max_algorithms> all{};
  int found = 0;
  if (find(max_algorithms, &found, all.data()) != CUDNN_STATUS_SUCCESS) return {};
  const bool deterministic = scope.cuda_context.rules().deterministic;
  const bool strict = geometry.math() == CUDNN_FMA_MATH;
  const std::span candidates = std::span(all).first(static_cast<std::size_t>(found));
  std::stable_partition(candidates.begin(), candidates.end(),
                        [&](const Performance& one) { return !strict || one.mathType == CUDNN_FMA_MATH; });
  for (const Performance& candidate : candidates) {
    const bool works = candidate.status == CUDNN_STATUS_SUCCESS;
    const bool fits = candidate.memory <= scope.cuda_context.workspace().size();
    if (!works || !fits || (deterministic && candidate.determinism != CUDNN_DETERMINISTIC)) continue;
    const CudnnConvolutionAlgorithm choice{candidate.algo, strict ? CUDNN_FMA_MATH : candidate.mathType};
    if (run(choice) != CUDNN_STATUS_SUCCESS) continue;
    scope.cuda_context.workspace().require(candidate.memory);
    return choice;
  }
  return {};
}

/// As `choose`, but caches the choice for each problem. Throws NoAlgorithmFound if there is none.
template <typename Performance, typename Find, typename Run>
void choose_once(const KernelScope& scope, const ConvolutionGeometry& geometry, Product product, Find find, Run run) {
  ProblemKey problem = geometry.problem();
  problem.push_back(static_cast<std::int64_t>(product));
  const CudnnConvolutionAlgorithm& choice = scope.cuda_context.convolution_algorithms().get_or_choose(
      problem, [&] { return choose<Performance>(scope, geometry, find, run); });
  if (choice.algorithm < 0 || run(choice) != CUDNN_STATUS_SUCCESS) throw NoAlgorithmFound{};
}

const void* kernel_of(const KernelScope& scope) {
  const int parameter = scope.operation.parameter;
  if (scope.input().type == ElementType::bfloat16) return scope.low_precision(parameter);
  return scope.weights(parameter);
}

class ConvolutionForward final : public Kernel {
 public:
  explicit ConvolutionForward(const KernelScope& scope)
      : cuda_context_(scope.cuda_context),
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
    unpadded_ = input_;
    if (geometry_.needs_padding()) {
      padded_input_ = geometry_.make_padded_buffer();
      input_ = padded_input_.data();
    }
    if (output_type_ != geometry_.type()) {
      before_type_change_ = DeviceBuffer(count_ * size_of(geometry_.type()));
      product_ = before_type_change_.data();
    }
    choose_algorithm(scope);
    prepare_fusion();
  }

  void enqueue(const StepContext& /*context*/) override {
    if (geometry_.needs_padding())
      pad_images(cuda_context_.stream(), geometry_.type(), unpadded_, padded_input_.data(), geometry_.padding());
    if (fused_) {
      check(enqueue_fused(), "cudnnConvolutionBiasActivationForward");
    } else {
      check(enqueue_plain(), "cudnnConvolutionForward");
    }
    if (needs_epilogue_) {
      add_bias_activation(cuda_context_.stream(), geometry_.type(), product_, output_type_, output_, bias_, count_,
                          channels_, function_);
    }
  }

  [[nodiscard]] std::string implementation() const override {
    return fmt::format("cudnn:{}{}{}", static_cast<int>(algorithm_), fused_ ? "+bias+activation" : "",
                       needs_epilogue_ ? ", custom epilogue" : "");
  }

 private:
  void choose_algorithm(const KernelScope& scope) {
    const ConvolutionGeometry& g = geometry_;
    const auto find = [&](int most, int* found, cudnnConvolutionFwdAlgoPerf_t* all) {
      if (cuda_context_.rules().deterministic) {
        return cudnnGetConvolutionForwardAlgorithm_v7(cuda_context_.cudnn(), g.input(), g.filter(), g.convolution(),
                                                      g.output(), most, found, all);
      }
      return cudnnFindConvolutionForwardAlgorithmEx(cuda_context_.cudnn(), g.input(), input_, g.filter(), kernel_,
                                                    g.convolution(), g.output(), product_, most, found, all,
                                                    cuda_context_.workspace().data(), cuda_context_.workspace().size());
    };
    choose_once<cudnnConvolutionFwdAlgoPerf_t>(scope, geometry_, Product::forward, find,
                                               [&](const CudnnConvolutionAlgorithm& choice) {
                                                 algorithm_ = static_cast<cudnnConvolutionFwdAlgo_t>(choice.algorithm);
                                                 geometry_.set_math(choice.math);
                                                 return enqueue_plain();
                                               });
  }

  /// Tries to fuse bias and activation. Only running the fused kernel shows whether cuDNN supports the algorithm in it.
  void prepare_fusion() {
    const bool relu = function_ == ActivationFunction::relu;
    const bool fusable = geometry_.type() == ElementType::float32 && bias_ != nullptr &&
                         (relu || function_ == ActivationFunction::linear);
    if (fusable) {
      // cuDNN supports the identity activation only with this algorithm.
      if (!relu && algorithm_ != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) return decide_epilogue();
      bias_descriptor_ = describe_images(ElementType::float32, 1, 1, 1, static_cast<std::int64_t>(channels_));
      activation_ = make_handle<ActivationDescriptor>(
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
    decide_epilogue();
  }

  void decide_epilogue() {
    needs_epilogue_ = bias_ != nullptr || function_ != ActivationFunction::linear || product_ != output_;
  }

  [[nodiscard]] cudnnStatus_t enqueue_plain() const {
    return cudnnConvolutionForward(cuda_context_.cudnn(), &one, geometry_.input(), input_, geometry_.filter(), kernel_,
                                   geometry_.convolution(), algorithm_, cuda_context_.workspace().data(),
                                   cuda_context_.workspace().size(), &zero, geometry_.output(), product_);
  }

  [[nodiscard]] cudnnStatus_t enqueue_fused() const {
    return cudnnConvolutionBiasActivationForward(
        cuda_context_.cudnn(), &one, geometry_.input(), input_, geometry_.filter(), kernel_, geometry_.convolution(),
        algorithm_, cuda_context_.workspace().data(), cuda_context_.workspace().size(), &zero, geometry_.output(),
        product_, bias_descriptor_.get(), fused_bias_, activation_.get(), geometry_.output(), product_);
  }

  const CudaContext& cuda_context_;
  ConvolutionGeometry geometry_;
  std::size_t count_;
  std::size_t channels_;
  ElementType output_type_;
  ActivationFunction function_;  ///< linear if it is fused
  const float* bias_;            ///< null if it is fused
  const float* fused_bias_ = nullptr;
  const void* kernel_;
  void* unpadded_ = nullptr;
  void* input_;  ///< the padded copy if cuDNN needs one
  void* output_;
  void* product_;  ///< the output before conversion to its type
  DeviceBuffer padded_input_;
  DeviceBuffer before_type_change_;
  TensorDescriptor bias_descriptor_;
  ActivationDescriptor activation_;
  cudnnConvolutionFwdAlgo_t algorithm_{};
  bool fused_ = false;
  bool needs_epilogue_ = false;
};

class ConvolutionBackward final : public Kernel {
 public:
  explicit ConvolutionBackward(const KernelScope& scope)
      : cuda_context_(scope.cuda_context),
        geometry_(scope),
        pixels_(scope.num_examples * static_cast<std::size_t>(scope.output().height * scope.output().width)),
        channels_(static_cast<std::size_t>(scope.output().channels)),
        num_examples_(scope.num_examples),
        features_(static_cast<std::size_t>(scope.input().elements())),
        input_function_(scope.operation.input_activation),
        scratch_(scope.reduction_scratch),
        kernel_(kernel_of(scope)),
        kernel_count_(scope.graph.parameters[scope.operation.parameter].storage),
        kernel_gradient_(trains(scope) ? scope.weights_gradient(scope.operation.parameter) : nullptr),
        bias_gradient_(trains(scope) && scope.has_bias() ? scope.weights_gradient(scope.operation.parameter + 1)
                                                         : nullptr),
        unpadded_(scope.value<void>(scope.operation.input)),
        input_(unpadded_),
        output_gradient_(scope.gradient<void>(scope.operation.output)),
        kernel_product_(kernel_gradient_) {
    if (geometry_.needs_padding()) {
      padded_input_ = geometry_.make_padded_buffer();
      input_ = padded_input_.data();
    }
    if (scope.output().type != geometry_.type()) {
      converted_ = DeviceBuffer(pixels_ * channels_ * size_of(geometry_.type()));
      convert_from_ = output_gradient_;
      output_gradient_ = converted_.data();
    }
    if (trains(scope) &&
        geometry_.type() == ElementType::bfloat16) {  // cuDNN computes the gradient in the input's type
      low_kernel_gradient_ = DeviceBuffer(kernel_count_ * sizeof(BFloat16));
      kernel_product_ = low_kernel_gradient_.data();
    }
    if (trains(scope)) choose_for_weights(scope);
    if (!scope.operation.input_gradient) return;
    input_gradient_ = scope.gradient<void>(scope.operation.input);
    data_product_ = input_gradient_;
    if (geometry_.needs_padding()) {
      padded_input_gradient_ = geometry_.make_padded_buffer();
      data_product_ = padded_input_gradient_.data();
    }
    choose_for_data(scope);
  }

  void enqueue(const StepContext& /*context*/) override {
    cudaStream_t stream = cuda_context_.stream();
    const ElementType type = geometry_.type();
    if (convert_from_ != nullptr) {
      add_bias_activation(stream, ElementType::float32, convert_from_, type, output_gradient_, nullptr,
                          pixels_ * channels_, channels_, ActivationFunction::linear);
    }
    if (kernel_gradient_ != nullptr) enqueue_parameters(stream, type);
    if (input_gradient_ == nullptr) return;
    check(enqueue_data(), "cudnnConvolutionBackwardData");
    if (geometry_.needs_padding()) crop_images(stream, type, data_product_, input_gradient_, geometry_.padding());
    apply_activation_gradient(stream, type, unpadded_, input_gradient_, num_examples_, features_, 0, features_,
                              input_function_);
  }

  [[nodiscard]] std::string implementation() const override {
    std::string names;
    if (kernel_gradient_ != nullptr) names = fmt::format("cudnn:{}", static_cast<int>(weights_algorithm_));
    if (input_gradient_ != nullptr) {
      names += fmt::format("{}cudnn:{}", names.empty() ? "" : ", ", static_cast<int>(data_algorithm_));
    }
    return names;
  }

 private:
  [[nodiscard]] static bool trains(const KernelScope& scope) { return !scope.operation.is_frozen; }

  void enqueue_parameters(cudaStream_t stream, ElementType type) {
    if (geometry_.needs_padding()) pad_images(stream, type, unpadded_, padded_input_.data(), geometry_.padding());
    if (bias_gradient_ != nullptr) {
      reduce_bias_gradient(stream, type, output_gradient_, pixels_, channels_, scratch_, bias_gradient_);
    }
    check(enqueue_weights(), "cudnnConvolutionBackwardFilter");
    if (kernel_product_ == kernel_gradient_) return;
    add_bias_activation(stream, type, kernel_product_, ElementType::float32, kernel_gradient_, nullptr, kernel_count_,
                        1, ActivationFunction::linear);
  }

  [[nodiscard]] cudnnStatus_t enqueue_weights() {
    geometry_.set_math(weights_math_);
    return cudnnConvolutionBackwardFilter(cuda_context_.cudnn(), &one, geometry_.input(), input_, geometry_.output(),
                                          output_gradient_, geometry_.convolution(), weights_algorithm_,
                                          cuda_context_.workspace().data(), cuda_context_.workspace().size(), &zero,
                                          geometry_.filter(), kernel_product_);
  }

  [[nodiscard]] cudnnStatus_t enqueue_data() {
    geometry_.set_math(data_math_);
    return cudnnConvolutionBackwardData(cuda_context_.cudnn(), &one, geometry_.filter(), kernel_, geometry_.output(),
                                        output_gradient_, geometry_.convolution(), data_algorithm_,
                                        cuda_context_.workspace().data(), cuda_context_.workspace().size(), &zero,
                                        geometry_.input(), data_product_);
  }

  void choose_for_weights(const KernelScope& scope) {
    const ConvolutionGeometry& g = geometry_;
    const auto find = [&](int most, int* found, cudnnConvolutionBwdFilterAlgoPerf_t* all) {
      if (cuda_context_.rules().deterministic) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(cuda_context_.cudnn(), g.input(), g.output(),
                                                             g.convolution(), g.filter(), most, found, all);
      }
      return cudnnFindConvolutionBackwardFilterAlgorithmEx(
          cuda_context_.cudnn(), g.input(), input_, g.output(), output_gradient_, g.convolution(), g.filter(),
          kernel_product_, most, found, all, cuda_context_.workspace().data(), cuda_context_.workspace().size());
    };
    choose_once<cudnnConvolutionBwdFilterAlgoPerf_t>(
        scope, geometry_, Product::weights, find, [&](const CudnnConvolutionAlgorithm& choice) {
          weights_algorithm_ = static_cast<cudnnConvolutionBwdFilterAlgo_t>(choice.algorithm);
          weights_math_ = choice.math;
          return enqueue_weights();
        });
  }

  void choose_for_data(const KernelScope& scope) {
    const ConvolutionGeometry& g = geometry_;
    geometry_.set_math(g.math());
    const auto find = [&](int most, int* found, cudnnConvolutionBwdDataAlgoPerf_t* all) {
      if (cuda_context_.rules().deterministic) {
        return cudnnGetConvolutionBackwardDataAlgorithm_v7(cuda_context_.cudnn(), g.filter(), g.output(),
                                                           g.convolution(), g.input(), most, found, all);
      }
      return cudnnFindConvolutionBackwardDataAlgorithmEx(
          cuda_context_.cudnn(), g.filter(), kernel_, g.output(), output_gradient_, g.convolution(), g.input(),
          data_product_, most, found, all, cuda_context_.workspace().data(), cuda_context_.workspace().size());
    };
    choose_once<cudnnConvolutionBwdDataAlgoPerf_t>(
        scope, geometry_, Product::data, find, [&](const CudnnConvolutionAlgorithm& choice) {
          data_algorithm_ = static_cast<cudnnConvolutionBwdDataAlgo_t>(choice.algorithm);
          data_math_ = choice.math;
          return enqueue_data();
        });
  }

  const CudaContext& cuda_context_;
  ConvolutionGeometry geometry_;
  std::size_t pixels_;
  std::size_t channels_;
  std::size_t num_examples_;
  std::size_t features_;
  ActivationFunction input_function_;
  std::byte* scratch_;
  const void* kernel_;
  std::size_t kernel_count_;
  float* kernel_gradient_;  ///< null if the layer is frozen
  float* bias_gradient_;
  void* unpadded_;
  void* input_;
  void* output_gradient_;
  void* kernel_product_;  ///< the kernel's gradient before conversion to float32
  const void* convert_from_ = nullptr;
  DeviceBuffer padded_input_;
  DeviceBuffer converted_;
  DeviceBuffer low_kernel_gradient_;
  void* input_gradient_ = nullptr;
  void* data_product_ = nullptr;
  DeviceBuffer padded_input_gradient_;
  cudnnConvolutionBwdFilterAlgo_t weights_algorithm_{};
  cudnnConvolutionBwdDataAlgo_t data_algorithm_{};
  cudnnMathType_t weights_math_{};
  cudnnMathType_t data_math_{};
};

}  // namespace

std::unique_ptr<Kernel> make_convolution(const KernelScope& scope) {
  if (scope.operation.groups > 1 || scope.operation.is_transposed) refuse_layer(scope);
  if (scope.cuda_context.rules().direct_convolutions) return make_direct_convolution(scope);
  try {
    return std::make_unique<ConvolutionForward>(scope);
  } catch (const NoAlgorithmFound&) {
    log_warning("cuDNN has no algorithm for layer '" + scope.layer().name + "' forward; using a slow kernel instead");
    return make_direct_convolution(scope);
  }
}

std::unique_ptr<Kernel> make_convolution_backward(const KernelScope& scope) {
  if (scope.cuda_context.rules().direct_convolutions) return make_direct_convolution_backward(scope);
  try {
    return std::make_unique<ConvolutionBackward>(scope);
  } catch (const NoAlgorithmFound&) {
    log_warning("cuDNN has no algorithm for layer '" + scope.layer().name + "' backward; using a slow kernel instead");
    return make_direct_convolution_backward(scope);
  }
}

}  // namespace lockstep::cuda
