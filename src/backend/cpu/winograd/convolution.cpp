// See convolution.hpp.
#include "backend/cpu/winograd/convolution.hpp"

#include "backend/cpu/activation.hpp"
#include "backend/cpu/bias_gradient.hpp"
#include "backend/cpu/layout_conversion.hpp"
#include "backend/cpu/tensor_descriptor.hpp"
#include "backend/cpu/winograd/passes.hpp"

#include <algorithm>
#include <string>

namespace lockstep {

namespace {

using dnnl::memory;
using winograd::Geometry;
using winograd::KernelTable;

const KernelTable& kernels_for(Layout layout) {
  return layout == Layout::nChw16c ? winograd::avx512_kernels() : winograd::avx2_kernels();
}

Geometry geometry_of(const Graph& graph, const Operation& operation) {
  const TensorSpec& x = graph.tensors[operation.input];
  const TensorSpec& y = graph.tensors[operation.output];
  const auto& [rows, columns] = operation.windows;
  return {x.height, x.width, x.channels, y.height, y.width, y.channels, rows.pad_before(), columns.pad_before()};
}

std::size_t bytes_of(std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

winograd::Images images_of(const LayoutConversion& tensor, ElementType type) {
  void* const data = tensor.wanted().get_data_handle();
  if (type == ElementType::bfloat16) return static_cast<BFloat16*>(data);
  return static_cast<float*>(data);
}

/// A kernel's memory for transformed weights and for the sums of their gradients. All microbatches of an operation
/// share it. An operation that runs once in a step keeps nothing from one run to the next, so it uses scratch memory,
/// for one after the other.
struct ComponentWeights {
  ComponentWeights(const KernelScope& scope, const Geometry& geometry) {
    const std::int64_t elements = geometry.weight_elements();
    auto* scratch = reinterpret_cast<float*>(scope.scratch);
    transformed = gradients = scratch;
    work = scratch + elements;
    if (scope.operation.microbatch.count == 1) return;
    memory& first = scope.converted_weights[{scope.operation.parameter, scope.operation.kind}];
    const std::int64_t count = scope.is_backward() ? 2 * elements : elements;
    if (!first) first = memory({{count}, memory::data_type::f32, memory::format_tag::a}, scope.dnnl.engine);
    shared = first;
    transformed = static_cast<float*>(shared.get_data_handle());
    if (scope.is_backward()) gradients = transformed + elements;
  }

  memory shared;  ///< keeps the memory of all microbatches
  float* transformed;
  float* gradients;
  float* work;
};

class WinogradForward final : public Kernel {
 public:
  explicit WinogradForward(const KernelScope& scope)
      : geometry_(geometry_of(scope.graph, scope.operation)),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        is_first_(scope.operation.microbatch.index == 0),
        input_type_(scope.input().type),
        output_type_(problem_of(scope).output().type),
        weights_(scope.weights(scope.operation.parameter)),
        component_weights_(scope, geometry_),
        resources_{kernels_for(scope.operation.convolution.input), component_weights_.work, scope.threads},
        activation_(scope, scope.operation.activation == ActivationFunction::relu) {
    const ConvolutionProblem problem = problem_of(scope);
    const memory::desc source = descriptor_of(problem.input(), scope.num_examples);
    const memory::desc result = descriptor_of(problem.output(), scope.num_examples);
    const bool is_partial = produces_partial_sum(scope.graph, scope.operation);
    input_ = {scope.dnnl, stored_as(scope.input(), problem.input(), scope.num_examples, source),
              scope.value<void>(scope.operation.input), source, true};
    TensorSpec output = scope.output();
    output.type = output_type_;  // float32 for a partial sum
    output_ = {
        scope.dnnl, stored_as(output, problem.output(), scope.num_examples, result),
        is_partial ? scope.weights_gradient(*scope.operation.partial_sum) : scope.value<void>(scope.operation.output),
        result, false};
    if (is_partial) return;
    if (scope.has_bias()) epilogue_.bias = scope.weights(scope.operation.parameter + 1);
    epilogue_.relu = scope.operation.activation == ActivationFunction::relu;
  }

  void run(const StepContext& /*context*/) override {
    input_.run();
    if (is_first_) winograd::transform_weights(resources_, geometry_, weights_, false, component_weights_.transformed);
    winograd::convolve(resources_, geometry_, num_examples_, images_of(input_, input_type_),
                       component_weights_.transformed, epilogue_, images_of(output_, output_type_));
    output_.run();
    activation_.run();
  }

  [[nodiscard]] std::string implementation() const override { return "winograd"; }

 private:
  Geometry geometry_;
  std::int64_t num_examples_;
  bool is_first_;  ///< of the microbatches
  ElementType input_type_;
  ElementType output_type_;
  const float* weights_;
  ComponentWeights component_weights_;
  winograd::Resources resources_;
  winograd::Epilogue epilogue_;
  LayoutConversion input_;
  LayoutConversion output_;
  UnfusedActivation activation_;
};

class WinogradBackward final : public Kernel {
 public:
  explicit WinogradBackward(const KernelScope& scope)
      : geometry_(geometry_of(scope.graph, scope.operation)),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        is_first_(scope.operation.microbatch.index == 0),
        is_last_(scope.is_last_microbatch),
        type_(scope.input().type),
        has_data_gradient_(scope.operation.input_gradient),
        has_weight_gradients_(!scope.operation.is_frozen),
        weights_(scope.weights(scope.operation.parameter)),
        component_weights_(scope, geometry_),
        resources_{kernels_for(scope.operation.convolution.input), component_weights_.work, scope.threads},
        input_derivative_(scope) {
    const ConvolutionProblem problem = problem_of(scope);
    const memory::desc source = descriptor_of(problem.input(), scope.num_examples);
    const memory::desc result = descriptor_of(problem.output_gradient(), scope.num_examples);
    const memory::desc stored = stored_as(scope.input(), problem.input(), scope.num_examples, source);
    input_ = {scope.dnnl, stored, scope.value<void>(scope.operation.input), source, true};
    output_gradient_ = {scope.dnnl, stored_as(scope.output(), problem.output_gradient(), scope.num_examples, result),
                        scope.gradient<void>(scope.operation.output), result, true};
    if (has_weight_gradients_) {
      weights_gradient_ = scope.weights_gradient(scope.operation.parameter);
      bias_gradient_ = BiasGradient(scope);
    }
    if (!has_data_gradient_) return;
    input_gradient_ = {scope.dnnl, stored, scope.gradient<void>(scope.operation.input), source, false};
    fuses_derivative_ = scope.operation.input_activation == ActivationFunction::relu && !input_gradient_.converts();
    if (fuses_derivative_) epilogue_.relu_output = images_of(input_, type_);
  }

  void run(const StepContext& /*context*/) override {
    output_gradient_.run();
    if (has_data_gradient_) compute_input_gradient();
    if (has_weight_gradients_) compute_weight_gradients();
  }

  [[nodiscard]] std::string implementation() const override { return "winograd"; }

 private:
  void compute_weight_gradients() {
    input_.run();
    if (is_first_) std::fill_n(component_weights_.gradients, geometry_.weight_elements(), 0.0F);
    winograd::add_weight_gradients(resources_, geometry_, num_examples_, images_of(input_, type_),
                                   images_of(output_gradient_, type_), component_weights_.gradients);
    if (is_last_)
      winograd::transform_weight_gradients(resources_, geometry_, component_weights_.gradients, weights_gradient_);
    bias_gradient_.run();
  }

  void compute_input_gradient() {
    const Geometry flipped = geometry_.flipped();
    if (is_first_) winograd::transform_weights(resources_, flipped, weights_, true, component_weights_.transformed);
    winograd::convolve(resources_, flipped, num_examples_, images_of(output_gradient_, type_),
                       component_weights_.transformed, epilogue_, images_of(input_gradient_, type_));
    input_gradient_.run();
    if (!fuses_derivative_) input_derivative_.run();
  }

  Geometry geometry_;
  std::int64_t num_examples_;
  bool is_first_;  ///< of the microbatches
  bool is_last_;
  ElementType type_;  ///< of what is read and written
  bool has_data_gradient_;
  bool has_weight_gradients_;
  bool fuses_derivative_ = false;
  const float* weights_;
  float* weights_gradient_ = nullptr;
  ComponentWeights component_weights_;
  winograd::Resources resources_;
  winograd::Epilogue epilogue_;
  LayoutConversion input_;
  LayoutConversion output_gradient_;
  LayoutConversion input_gradient_;
  BiasGradient bias_gradient_;
  InputDerivative input_derivative_;
};

}  // namespace

bool supports_winograd(const ConvolutionProblem& problem) {
  const TensorSpec input = problem.input();
  const TensorSpec output = problem.output();
  const Operation& operation = problem.operation;
  const auto is_3 = [](const Window& axis) { return axis.kernel == 3 && axis.stride == 1 && axis.dilation == 1; };
  const bool is_ordinary = operation.groups == 1 && !operation.is_transposed;
  // Microbatches sum the gradient of transformed weights in memory that belongs to one call of a layer.
  const bool is_called_once = operation.shared.count == 1;
  const bool is_blocked =
      input.layout == output.layout && (input.layout == Layout::nChw16c || input.layout == Layout::nChw8c);
  if (!is_3(operation.windows.rows) || !is_3(operation.windows.columns) || !is_ordinary || !is_called_once)
    return false;
  if (!is_blocked || (input.type == ElementType::bfloat16 && input.layout != Layout::nChw16c)) return false;
  const std::int64_t lanes = kernels_for(input.layout).lanes;
  return input.elements() > 0 && output.elements() > 0 && input.channels % lanes == 0 && output.channels % lanes == 0;
}

double winograd_work(const Graph& graph, const Operation& operation, std::size_t num_examples) {
  // Measured: the transforms of a tile's inputs and results take as long as products with 10 more channels each, and
  // those of weights as long as 3,000 multiply-adds for each pair of channels. All take 1.5 times as long if the
  // weights, which each piece of images reads again, exceed the caches.
  constexpr double transforms = 10;
  constexpr double weight_transforms = 3000;
  constexpr double direct_products = 4;  // for each of a full tile
  constexpr double cached_bytes = 16 << 20;
  const Geometry g = geometry_of(graph, operation);
  const auto channels = static_cast<double>(g.channels);
  const auto outputs = static_cast<double>(g.out_channels);
  const double products =
      static_cast<double>(num_examples) * static_cast<double>(winograd::products_of_image(g.out_height, g.out_width));
  const double from_memory = static_cast<double>(bytes_of(g.weight_elements())) > cached_bytes ? 1.5 : 1;
  return from_memory * channels * outputs *
         (direct_products * products * (1 + transforms / channels + transforms / outputs) + weight_transforms);
}

std::size_t winograd_scratch_bytes(const Graph& graph, const Operation& operation, int threads) {
  const Geometry geometry = geometry_of(graph, operation);
  const std::size_t work =
      std::max(winograd::scratch_elements(geometry, threads), winograd::scratch_elements(geometry.flipped(), threads));
  return bytes_of(geometry.weight_elements()) + work * sizeof(float);
}

std::unique_ptr<Kernel> make_winograd_forward(const KernelScope& scope) {
  return std::make_unique<WinogradForward>(scope);
}

std::unique_ptr<Kernel> make_winograd_backward(const KernelScope& scope) {
  return std::make_unique<WinogradBackward>(scope);
}

}  // namespace lockstep
