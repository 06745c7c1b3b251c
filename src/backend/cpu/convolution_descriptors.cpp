// See convolution_descriptors.hpp.
#include "backend/cpu/convolution_descriptors.hpp"

#include "backend/cpu/kernel.hpp"
#include "backend/cpu/tensor_descriptor.hpp"

namespace lockstep {

namespace {

using dnnl::memory;

/// {out, in, height, width}, of the convolution from image to map; with groups {groups, out, in, height, width}.
memory::dims kernel_dims(const Graph& graph, const Operation& operation) {
  const std::int64_t image = graph.tensors[operation.is_transposed ? operation.output : operation.input].channels;
  const std::int64_t map = graph.tensors[operation.is_transposed ? operation.input : operation.output].channels;
  const auto& [rows, columns] = operation.windows;
  const std::int64_t groups = operation.groups;
  if (groups == 1) return {map, image, rows.kernel, columns.kernel};
  return {groups, map / groups, image / groups, rows.kernel, columns.kernel};
}

memory::desc any_kernel(const ConvolutionProblem& problem, memory::data_type type) {
  return {kernel_dims(problem.graph, problem.operation), type, memory::format_tag::any};
}

/// None for a partial sum and for a transposed convolution, to which the bias is added later.
memory::desc bias_descriptor(const ConvolutionProblem& problem) {
  const Operation& operation = problem.operation;
  const bool is_added_later = operation.is_transposed || produces_partial_sum(problem.graph, operation);
  if (operation.num_parameters < 2 || is_added_later) return {};
  return {{problem.graph.tensors[operation.output].channels}, memory::data_type::f32, memory::format_tag::a};
}

/// What an ordinary convolution's forward pass reads.
TensorSpec image_of(const ConvolutionProblem& problem) {
  if (!problem.operation.is_transposed) return problem.input();
  return is_backward(problem.operation) ? problem.output_gradient() : problem.output();
}

/// What it writes, and its backward passes read.
TensorSpec map_of(const ConvolutionProblem& problem) {
  return problem.operation.is_transposed ? problem.input() : problem.output();
}
TensorSpec map_gradient_of(const ConvolutionProblem& problem) {
  return problem.operation.is_transposed ? problem.input() : problem.output_gradient();
}

/// Calls `describe` with the descriptor of the image. Every layout of an image of one channel describes the same
/// memory, so before blocks of output channels its layout is left open: with a named layout, oneDNN 3.7 falls back to
/// its reference code.
template <typename Describe>
auto describe_from_image(const ConvolutionProblem& problem, const TensorSpec& image, const Describe& describe) {
  const memory::desc named = descriptor_of(image, problem.num_examples);
  if (image.channels == 1 && map_of(problem).layout != Layout::nhwc) {
    auto chosen = describe(descriptor_of_any_layout(image, problem.num_examples));
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
  if (operation.is_transposed || produces_partial_sum(graph, operation)) tensor.type = ElementType::float32;
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

ConvolutionKind kind_of(const Graph& graph, const Operation& operation) {
  const std::int64_t input = graph.tensors[operation.input].channels;
  const std::int64_t output = graph.tensors[operation.output].channels;
  if (operation.groups > 1) {
    const bool is_depthwise = operation.groups == input && operation.groups == output;
    return is_depthwise ? ConvolutionKind::depthwise : ConvolutionKind::grouped;
  }
  const std::int64_t image = operation.is_transposed ? output : input;
  return image <= few_channels ? ConvolutionKind::few_channels : ConvolutionKind::ordinary;
}

onednn::Geometry convolution_geometry(const Windows& windows) {
  const auto& [rows, columns] = windows;
  return {.strides = {rows.stride, columns.stride},
          .dilation = {rows.dilation - 1, columns.dilation - 1},
          .pad_before = {rows.pad_before(), columns.pad_before()},
          .pad_after = {rows.pad_after(), columns.pad_after()}};
}

dnnl::convolution_forward::primitive_desc describe_forward(const ConvolutionProblem& problem) {
  const Operation& operation = problem.operation;
  const bool is_plain =
      operation.is_transposed || produces_partial_sum(problem.graph, operation) || is_backward(operation);
  const ActivationFunction activation = is_plain ? ActivationFunction::linear : operation.activation;
  TensorSpec image = image_of(problem);
  image.type = problem.input().type;  // a transposed convolution reads the converted gradient of a float32 output
  return describe_from_image(problem, image, [&](const memory::desc& source) {
    return onednn::convolution_forward(problem.context, source, any_kernel(problem, data_type_of(image)),
                                       bias_descriptor(problem), descriptor_of(map_of(problem), problem.num_examples),
                                       convolution_geometry(operation.windows), algorithm_of(activation),
                                       onednn::Algorithm::direct);
  });
}

dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(const ConvolutionProblem& problem) {
  const auto hint = describe_forward(problem);
  TensorSpec image = image_of(problem);
  image.type = problem.input().type;
  return describe_from_image(problem, image, [&](const memory::desc& source) {
    return onednn::convolution_backward_weights(
        problem.context, source, any_kernel(problem, memory::data_type::f32), bias_descriptor(problem),
        descriptor_of(map_gradient_of(problem), problem.num_examples), convolution_geometry(problem.operation.windows),
        hint, onednn::Algorithm::direct);
  });
}

dnnl::convolution_backward_data::primitive_desc describe_backward_data(const ConvolutionProblem& problem) {
  return onednn::convolution_backward_data(
      problem.context, descriptor_of(image_of(problem), problem.num_examples),
      any_kernel(problem, data_type_of(problem.input())), descriptor_of(map_gradient_of(problem), problem.num_examples),
      convolution_geometry(problem.operation.windows), describe_forward(problem), onednn::Algorithm::direct);
}

memory::desc weight_layout_of(const ConvolutionProblem& problem) {
  if (reads_keras_kernel(problem.choice.forward) || reads_keras_kernel(problem.choice.weights))
    return keras_kernel_descriptor(problem.graph, problem.operation);
  const bool is_low = problem.graph.tensors[problem.operation.input].type == ElementType::bfloat16;
  if (is_low) return describe_backward_weights(problem).diff_weights_desc();
  return problem.operation.is_transposed ? describe_backward_data(problem).weights_desc()
                                         : describe_forward(problem).weights_desc();
}

memory::desc keras_kernel_descriptor(const Graph& graph, const Operation& operation) {
  const memory::dims dims = kernel_dims(graph, operation);
  if (operation.groups == 1) return {dims, memory::data_type::f32, memory::format_tag::hwio};
  const std::int64_t groups = dims[0];
  const std::int64_t out = dims[1];  // of a group
  const std::int64_t in = dims[2];
  const std::int64_t width = dims[4];
  return {dims, memory::data_type::f32,
          memory::dims{out, 1, groups * out, width * in * groups * out, in * groups * out}};
}

}  // namespace lockstep
