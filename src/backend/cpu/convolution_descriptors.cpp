// See convolution_descriptors.hpp.
#include "backend/cpu/convolution_descriptors.hpp"

#include "backend/cpu/kernel.hpp"
#include "backend/cpu/tensor_descriptor.hpp"
#include "layers/window.hpp"

#include <limits>
#include <variant>

namespace lockstep {

namespace {

using dnnl::memory;

Window window_of(std::int64_t input, int kernel, int stride, int dilation, Padding padding) {
  return {.input = input, .kernel = kernel, .stride = stride, .dilation = dilation, .padding = padding};
}

memory::dims kernel_dims(const LayerInfo& layer) {
  const Shape& shape = layer.parameters.front().shape;  // [height, width, in, out]
  return {shape[3], shape[2], shape[0], shape[1]};
}

memory::desc any_kernel(const LayerInfo& layer, memory::data_type type) {
  return {kernel_dims(layer), type, memory::format_tag::any};
}

/// None for a partial sum, to which the bias is added later.
memory::desc bias_descriptor(const ConvolutionProblem& problem) {
  const LayerInfo& layer = problem.graph.layers[problem.operation.layer];
  if (layer.parameters.size() < 2 || produces_partial_sum(problem.graph, problem.operation)) return {};
  return {{layer.parameters[1].shape[0]}, memory::data_type::f32, memory::format_tag::a};
}

const LayerInfo& layer_of(const ConvolutionProblem& problem) { return problem.graph.layers[problem.operation.layer]; }

const Conv2D& convolution_of(const ConvolutionProblem& problem) { return std::get<Conv2D>(layer_of(problem).layer); }

/// Calls `describe` with the descriptor of the input. Every layout of an image of one channel describes the same
/// memory, so before blocks of output channels its layout is left open: with a named layout, oneDNN 3.7 falls back to
/// its reference code.
template <typename Describe>
auto describe_from_input(const ConvolutionProblem& problem, const Describe& describe) {
  const TensorSpec input = problem.input();
  const memory::desc named = descriptor_of(input, problem.num_examples);
  if (input.channels == 1 && problem.choice.output != Layout::nhwc) {
    auto chosen = describe(descriptor_of_any_layout(input, problem.num_examples));
    if (chosen.src_desc().get_size() == named.get_size()) return chosen;
  }
  return describe(named);
}

}  // namespace

TensorSpec ConvolutionProblem::input() const {
  TensorSpec tensor = graph.tensors[operation.input];
  tensor.layout = choice.input;
  return tensor;
}

TensorSpec ConvolutionProblem::output() const {
  TensorSpec tensor = graph.tensors[operation.output];
  tensor.layout = choice.output;
  if (produces_partial_sum(graph, operation)) tensor.type = ElementType::float32;
  return tensor;
}

TensorSpec ConvolutionProblem::output_gradient() const {
  TensorSpec tensor = output();
  tensor.type = graph.tensors[operation.input].type;
  return tensor;
}

ConvolutionProblem problem_of(const KernelScope& scope) {
  return {scope.dnnl, scope.graph, scope.operation, scope.num_examples, scope.operation.convolution};
}

bool produces_partial_sum(const Graph& graph, const Operation& operation) {
  return graph.tensors[operation.input].whole_channels > 0;
}

onednn::Geometry convolution_geometry(const TensorSpec& input, const Conv2D& conv) {
  const Window rows =
      window_of(input.height, conv.kernel_size.height, conv.strides.height, conv.dilation_rate.height, conv.padding);
  const Window columns =
      window_of(input.width, conv.kernel_size.width, conv.strides.width, conv.dilation_rate.width, conv.padding);
  return {.strides = {conv.strides.height, conv.strides.width},
          .dilation = {conv.dilation_rate.height - 1, conv.dilation_rate.width - 1},
          .pad_before = {rows.pad_before(), columns.pad_before()},
          .pad_after = {rows.pad_after(), columns.pad_after()}};
}

dnnl::convolution_forward::primitive_desc describe_forward(const ConvolutionProblem& problem) {
  const TensorSpec input = problem.input();
  const bool is_partial = produces_partial_sum(problem.graph, problem.operation);
  const ActivationFunction activation =
      is_partial || is_backward(problem.operation) ? ActivationFunction::linear : problem.operation.activation;
  return describe_from_input(problem, [&](const memory::desc& source) {
    return onednn::convolution_forward(problem.context, source, any_kernel(layer_of(problem), data_type_of(input)),
                                       bias_descriptor(problem), descriptor_of(problem.output(), problem.num_examples),
                                       convolution_geometry(input, convolution_of(problem)), algorithm_of(activation),
                                       onednn::Algorithm::direct);
  });
}

int max_threads_for_weights(const ConvolutionProblem& problem) {
  const Conv2D& conv = convolution_of(problem);
  const TensorSpec input = problem.input();
  const bool is_strided = conv.kernel_size == Size2D(1) && !(conv.strides == Size2D(1));
  return is_strided && input.layout == Layout::nhwc && input.channels < 16 ? 1 : std::numeric_limits<int>::max();
}

dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(const ConvolutionProblem& problem) {
  const onednn::ThreadLimit limit(max_threads_for_weights(problem));
  const auto hint = describe_forward(problem);
  return describe_from_input(problem, [&](const memory::desc& source) {
    return onednn::convolution_backward_weights(
        problem.context, source, any_kernel(layer_of(problem), memory::data_type::f32), bias_descriptor(problem),
        descriptor_of(problem.output_gradient(), problem.num_examples),
        convolution_geometry(problem.input(), convolution_of(problem)), hint, onednn::Algorithm::direct);
  });
}

dnnl::convolution_backward_data::primitive_desc describe_backward_data(const ConvolutionProblem& problem) {
  const TensorSpec input = problem.input();
  return onednn::convolution_backward_data(
      problem.context, descriptor_of(input, problem.num_examples), any_kernel(layer_of(problem), data_type_of(input)),
      descriptor_of(problem.output_gradient(), problem.num_examples),
      convolution_geometry(input, convolution_of(problem)), describe_forward(problem), onednn::Algorithm::direct);
}

memory::desc weight_layout_of(const ConvolutionProblem& problem) {
  const auto is_own = [](ConvolutionAlgorithm algorithm) {
    return algorithm == ConvolutionAlgorithm::direct_few_channels || algorithm == ConvolutionAlgorithm::winograd;
  };
  if (is_own(problem.choice.forward) || is_own(problem.choice.weights))
    return keras_kernel_descriptor(layer_of(problem));
  const bool is_low = problem.graph.tensors[problem.operation.input].type == ElementType::bfloat16;
  return is_low ? describe_backward_weights(problem).diff_weights_desc() : describe_forward(problem).weights_desc();
}

memory::desc keras_kernel_descriptor(const LayerInfo& layer) {
  return {kernel_dims(layer), memory::data_type::f32, memory::format_tag::hwio};
}

}  // namespace lockstep
