// Bare activations and sums of tensors, described for oneDNN 2 and 3.
#include "micro/bare_primitive.hpp"

namespace lockstep::bench {

namespace {

BareKernel sum(const Maker& make, const TensorSpec& tensor, std::size_t rows, dnnl::algorithm activation) {
  const memory::desc data = descriptor_of(tensor, rows);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::binary::primitive_desc description(make.context().engine, dnnl::algorithm::binary_add, data, data, data,
                                                 onednn::with_activation(activation));
#else
  const dnnl::binary::primitive_desc description(dnnl::binary::desc(dnnl::algorithm::binary_add, data, data, data),
                                                 onednn::with_activation(activation), make.context().engine);
#endif
  return make.kernel<dnnl::binary>("sum", "binary", description,
                                   {{DNNL_ARG_SRC_0, make.filled(data, data_type_of(tensor))},
                                    {DNNL_ARG_SRC_1, make.filled(data, data_type_of(tensor))},
                                    {DNNL_ARG_DST, make.filled(data, data_type_of(tensor))}});
}

BareKernel activation_kernel(const Maker& make, const TensorSpec& tensor, std::size_t rows, dnnl::algorithm function,
                             bool is_backward) {
  const onednn::Context& context = make.context();
  const memory::desc data = descriptor_of(tensor, rows);
  constexpr auto training = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::eltwise_forward::primitive_desc forward(context.engine, training, function, data, data);
  const dnnl::eltwise_backward::primitive_desc backward(context.engine, function, data, data, data, forward);
#else
  const dnnl::eltwise_forward::primitive_desc forward(dnnl::eltwise_forward::desc(training, function, data),
                                                      context.engine);
  const dnnl::eltwise_backward::primitive_desc backward(dnnl::eltwise_backward::desc(function, data, data),
                                                        context.engine, forward);
#endif
  const memory source = make.filled(data, data_type_of(tensor));
  const memory output = make.filled(data, data_type_of(tensor));
  if (is_backward) {
    return make.kernel<dnnl::eltwise_backward>("backward", "eltwise", backward,
                                               {{DNNL_ARG_SRC, source},
                                                {DNNL_ARG_DIFF_DST, output},
                                                {DNNL_ARG_DIFF_SRC, make.filled(data, data_type_of(tensor))}});
  }
  return make.kernel<dnnl::eltwise_forward>("forward", "eltwise", forward,
                                            {{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, output}});
}

}  // namespace

/// None for merges that are no sum of two tensors, and for functions that oneDNN lacks.
std::vector<BareKernel> elementwise_kernels(const Maker& make, const Graph& graph, const Operation& operation,
                                            std::size_t rows) {
  const TensorSpec& tensor = graph.tensors[operation.input];
  const dnnl::algorithm function = algorithm_of(operation.activation);
  if (operation.kind == OperationKind::activation || operation.kind == OperationKind::activation_backward) {
    if (function == dnnl::algorithm::undef) return {};
    return {activation_kernel(make, tensor, rows, function, is_backward(operation))};
  }
  const bool adds = operation.kind == OperationKind::sum_gradients || operation.merge == MergeFunction::add;
  if (!adds || operation.operands.size() != 2) return {};
  return {sum(make, tensor, rows, operation.kind == OperationKind::merge ? function : dnnl::algorithm::undef)};
}

}  // namespace lockstep::bench
