// Bare inner products, described for oneDNN 2 and 3.
#include "micro/bare_primitive.hpp"

namespace lockstep::bench {

namespace {

dnnl::inner_product_forward::primitive_desc describe_dense(const onednn::Context& context, const memory::desc& source,
                                                           const memory::desc& weights, const memory::desc& bias,
                                                           const memory::desc& output, dnnl::algorithm activation) {
  constexpr auto training = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  return {context.engine, training, source, weights, bias, output, onednn::with_activation(activation)};
#else
  return {dnnl::inner_product_forward::desc(training, source, weights, bias, output),
          onednn::with_activation(activation), context.engine};
#endif
}

dnnl::inner_product_backward_weights::primitive_desc describe_dense_weights(
    const onednn::Context& context, const memory::desc& source, const memory::desc& weights, const memory::desc& bias,
    const memory::desc& output, const dnnl::inner_product_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return {context.engine, source, weights, bias, output, forward};
#else
  return {dnnl::inner_product_backward_weights::desc(source, weights, bias, output), context.engine, forward};
#endif
}

dnnl::inner_product_backward_data::primitive_desc describe_dense_data(
    const onednn::Context& context, const memory::desc& source, const memory::desc& weights, const memory::desc& output,
    const dnnl::inner_product_forward::primitive_desc& forward) {
#if DNNL_VERSION_MAJOR >= 3
  return {context.engine, source, weights, output, forward};
#else
  return {dnnl::inner_product_backward_data::desc(source, weights, output), context.engine, forward};
#endif
}

}  // namespace

std::vector<BareKernel> dense_kernels(const Maker& make, const Graph& graph, const Operation& operation,
                                      std::size_t rows) {
  const onednn::Context& context = make.context();
  const Shapes s(graph, operation, rows);
  const bool backward = operation.kind == OperationKind::dense_backward;
  const memory::dims kernel_dims{s.output.elements(), s.input.elements()};
  const memory::desc source = any({s.count, s.input.elements()}, s.type);
  const memory::desc weights = any(kernel_dims, s.type);
  const Type output_type = backward ? s.type : s.output_type;
  const memory::desc output = any({s.count, s.output.elements()}, output_type);
  const auto forward = describe_dense(context, source, weights, s.bias(), output,
                                      backward ? dnnl::algorithm::undef : algorithm_of(operation.activation));
  std::vector<BareKernel> kernels;
  if (!backward) {
    std::vector<BoundPrimitive::Argument> arguments{{DNNL_ARG_SRC, make.filled(forward.src_desc(), s.type)},
                                                    {DNNL_ARG_WEIGHTS, make.filled(forward.weights_desc(), s.type)},
                                                    {DNNL_ARG_DST, make.filled(forward.dst_desc(), output_type)}};
    if (s.biased) arguments.push_back({DNNL_ARG_BIAS, make.filled(s.bias(), Type::f32)});
    kernels.push_back(
        make.kernel<dnnl::inner_product_forward>("forward", "inner_product", forward, std::move(arguments)));
    return kernels;
  }
  const auto by_weights =
      describe_dense_weights(context, source, any(kernel_dims, Type::f32), s.bias(), output, forward);
  std::vector<BoundPrimitive::Argument> arguments{
      {DNNL_ARG_SRC, make.filled(by_weights.src_desc(), s.type)},
      {DNNL_ARG_DIFF_DST, make.filled(by_weights.diff_dst_desc(), s.type)},
      {DNNL_ARG_DIFF_WEIGHTS, make.filled(by_weights.diff_weights_desc(), Type::f32)}};
  if (s.biased) arguments.push_back({DNNL_ARG_DIFF_BIAS, make.filled(s.bias(), Type::f32)});
  kernels.push_back(
      make.kernel<dnnl::inner_product_backward_weights>("weights", "inner_product", by_weights, std::move(arguments)));
  if (!operation.input_gradient) return kernels;
  const auto by_data = describe_dense_data(context, source, weights, output, forward);
  kernels.push_back(make.kernel<dnnl::inner_product_backward_data>(
      "data", "inner_product", by_data,
      {{DNNL_ARG_DIFF_DST, make.filled(by_data.diff_dst_desc(), s.type)},
       {DNNL_ARG_WEIGHTS, make.filled(by_data.weights_desc(), s.type)},
       {DNNL_ARG_DIFF_SRC, make.filled(by_data.diff_src_desc(), s.type)}}));
  return kernels;
}

}  // namespace lockstep::bench
