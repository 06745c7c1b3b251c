// Bare convolutions, plain, grouped and depthwise, as the backend describes them to oneDNN.
#include "backend/cpu/convolution_descriptors.hpp"
#include "micro/bare_primitive.hpp"

namespace lockstep::bench {

namespace {

/// {out, in, height, width}; with groups {groups, out, in, height, width}.
memory::dims dims_of_kernel(const Shapes& s, const Operation& operation) {
  const auto& [down, across] = operation.windows;
  const memory::dim groups = operation.groups;
  if (groups == 1) return {s.output.channels, s.input.channels, down.kernel, across.kernel};
  return {groups, s.output.channels / groups, s.input.channels / groups, down.kernel, across.kernel};
}

void add_convolution(std::vector<BareKernel>& kernels, const Maker& make, const Graph& graph,
                     const Operation& operation, std::size_t rows, onednn::Algorithm algorithm) {
  const onednn::Context& context = make.context();
  const Shapes s(graph, operation, rows);
  const bool backward = operation.kind == OperationKind::convolution_backward;
  const std::string name = algorithm == onednn::Algorithm::winograd ? "winograd" : "direct";
  const onednn::Geometry geometry = convolution_geometry(operation.windows);
  const memory::dims kernel_dims = dims_of_kernel(s, operation);
  const memory::desc source = any({s.count, s.input.channels, s.input.height, s.input.width}, s.type);
  const memory::dims output_dims{s.count, s.output.channels, s.output.height, s.output.width};
  const Type output_type = backward ? s.type : s.output_type;
  const memory::desc output = any(output_dims, output_type);
  const memory::desc weights = any(kernel_dims, s.type);
  const dnnl::algorithm activation = backward ? dnnl::algorithm::undef : algorithm_of(operation.activation);
  const auto forward =
      onednn::convolution_forward(context, source, weights, s.bias(), output, geometry, activation, algorithm);
  if (!backward) {
    std::vector<BoundPrimitive::Argument> arguments{{DNNL_ARG_SRC, make.filled(forward.src_desc(), s.type)},
                                                    {DNNL_ARG_WEIGHTS, make.filled(forward.weights_desc(), s.type)},
                                                    {DNNL_ARG_DST, make.filled(forward.dst_desc(), output_type)}};
    if (s.biased) arguments.push_back({DNNL_ARG_BIAS, make.filled(s.bias(), Type::f32)});
    kernels.push_back(make.kernel<dnnl::convolution_forward>("forward", name, forward, std::move(arguments)));
    return;
  }
  try {
    const auto description = onednn::convolution_backward_weights(context, source, any(kernel_dims, Type::f32),
                                                                  s.bias(), output, geometry, forward, algorithm);
    std::vector<BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, make.filled(description.src_desc(), s.type)},
        {DNNL_ARG_DIFF_DST, make.filled(description.diff_dst_desc(), s.type)},
        {DNNL_ARG_DIFF_WEIGHTS, make.filled(description.diff_weights_desc(), Type::f32)}};
    if (s.biased) arguments.push_back({DNNL_ARG_DIFF_BIAS, make.filled(s.bias(), Type::f32)});
    kernels.push_back(
        make.kernel<dnnl::convolution_backward_weights>("weights", name, description, std::move(arguments)));
  } catch (const dnnl::error&) {
    if (algorithm == onednn::Algorithm::direct) throw;
  }
  if (!operation.input_gradient) return;
  const auto description =
      onednn::convolution_backward_data(context, source, weights, output, geometry, forward, algorithm);
  kernels.push_back(make.kernel<dnnl::convolution_backward_data>(
      "data", name, description,
      {{DNNL_ARG_DIFF_DST, make.filled(description.diff_dst_desc(), s.type)},
       {DNNL_ARG_WEIGHTS, make.filled(description.weights_desc(), s.type)},
       {DNNL_ARG_DIFF_SRC, make.filled(description.diff_src_desc(), s.type)}}));
}

}  // namespace

std::vector<BareKernel> convolution_kernels(const Maker& make, const Graph& graph, const Operation& operation,
                                            std::size_t rows) {
  std::vector<BareKernel> kernels;
  add_convolution(kernels, make, graph, operation, rows, onednn::Algorithm::direct);
  if (!may_have_winograd(graph, operation)) return kernels;
  try {
    add_convolution(kernels, make, graph, operation, rows, onednn::Algorithm::winograd);
  } catch (const dnnl::error&) {  // oneDNN does not implement this combination on this CPU
  }
  return kernels;
}

bool may_have_winograd(const Graph& graph, const Operation& operation) {
  const bool convolves =
      operation.kind == OperationKind::convolution || operation.kind == OperationKind::convolution_backward;
  return convolves && operation.groups == 1 && onednn::has_winograd() &&
         graph.tensors[operation.input].type == ElementType::float32;
}

}  // namespace lockstep::bench
