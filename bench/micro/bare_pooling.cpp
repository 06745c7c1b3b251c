// Bare poolings, described for oneDNN 2 and 3.
#include "micro/bare_primitive.hpp"

namespace lockstep::bench {

/// In the layouts of the tensors, since pooling has no preferred layout.
std::vector<BareKernel> pooling_kernels(const Maker& make, const Graph& graph, const Operation& operation,
                                        std::size_t rows) {
  const onednn::Context& context = make.context();
  const Shapes s(graph, operation, rows);
  const bool is_max =
      operation.kind == OperationKind::max_pooling || operation.kind == OperationKind::max_pooling_backward;
  const auto& [down, across] = operation.windows;
  const memory::dims strides{down.stride, across.stride};
  const memory::dims size{down.kernel, across.kernel};
  const memory::dims before{down.pad_before(), across.pad_before()};
  const memory::dims after{down.pad_after(), across.pad_after()};
  const memory::desc source = descriptor_of(s.input, rows);
  const memory::desc output = descriptor_of(s.output, rows);
  constexpr auto training = dnnl::prop_kind::forward_training;
  const auto algorithm = is_max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_exclude_padding;
#if DNNL_VERSION_MAJOR >= 3
  const memory::dims dilation{0, 0};
  const dnnl::pooling_forward::primitive_desc forward(context.engine, training, algorithm, source, output, strides,
                                                      size, dilation, before, after);
  const dnnl::pooling_backward::primitive_desc backward(context.engine, algorithm, source, output, strides, size,
                                                        dilation, before, after, forward);
#else
  const dnnl::pooling_forward::primitive_desc forward(
      dnnl::pooling_forward::desc(training, algorithm, source, output, strides, size, before, after), context.engine);
  const dnnl::pooling_backward::primitive_desc backward(
      dnnl::pooling_backward::desc(algorithm, source, output, strides, size, before, after), context.engine, forward);
#endif
  std::vector<BoundPrimitive::Argument> of_forward{{DNNL_ARG_SRC, make.filled(source, s.type)},
                                                   {DNNL_ARG_DST, make.filled(output, s.type)}};
  std::vector<BoundPrimitive::Argument> of_backward{{DNNL_ARG_DIFF_DST, make.filled(output, s.type)},
                                                    {DNNL_ARG_DIFF_SRC, make.filled(source, s.type)}};
  if (is_max) {  // the maxima's positions, which forward writes and backward reads
    const memory winners = make.empty(forward.workspace_desc());
    of_forward.push_back({DNNL_ARG_WORKSPACE, winners});
    of_backward.push_back({DNNL_ARG_WORKSPACE, winners});
  }
  BareKernel first = make.kernel<dnnl::pooling_forward>("forward", "pooling", forward, std::move(of_forward));
  if (!is_backward(operation)) return {std::move(first)};
  first.run();
  return {make.kernel<dnnl::pooling_backward>("backward", "pooling", backward, std::move(of_backward))};
}

}  // namespace lockstep::bench
