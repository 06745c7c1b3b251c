// Bare batch normalizations, described for oneDNN 2 and 3. Of the activations that Lockstep fuses, oneDNN fuses relu;
// others are left out of the floor.
#include "micro/bare_primitive.hpp"

namespace lockstep::bench {

std::vector<BareKernel> normalization_kernels(const Maker& make, const Graph& graph, const Operation& operation,
                                              std::size_t rows) {
  const onednn::Context& context = make.context();
  const Shapes s(graph, operation, rows);
  const memory::desc data = descriptor_of(s.input, rows);
  const memory::desc channels({s.input.channels}, Type::f32, memory::format_tag::a);
  constexpr float epsilon = 1e-3F;
  constexpr auto training = dnnl::prop_kind::forward_training;
  using Flags = dnnl::normalization_flags;
  const bool relu = operation.activation == ActivationFunction::relu;
  const Flags flags = Flags::use_scale | Flags::use_shift | (relu ? Flags::fuse_norm_relu : Flags::none);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::batch_normalization_forward::primitive_desc forward(context.engine, training, data, data, epsilon, flags);
  const dnnl::batch_normalization_backward::primitive_desc backward(context.engine, dnnl::prop_kind::backward, data,
                                                                    data, data, epsilon, flags, forward);
#else
  const dnnl::batch_normalization_forward::primitive_desc forward(
      dnnl::batch_normalization_forward::desc(training, data, epsilon, flags), context.engine);
  const dnnl::batch_normalization_backward::primitive_desc backward(
      dnnl::batch_normalization_backward::desc(dnnl::prop_kind::backward, data, data, epsilon, flags), context.engine,
      forward);
#endif
  const memory source = make.filled(data, s.type);
  const memory mean = make.filled(channels, Type::f32);
  const memory variance = make.filled(channels, Type::f32);
  const memory scale = make.filled(channels, Type::f32);
  const memory shift = make.filled(channels, Type::f32);
  std::vector<BoundPrimitive::Argument> of_forward{{DNNL_ARG_SRC, source},  {DNNL_ARG_DST, make.filled(data, s.type)},
                                                   {DNNL_ARG_MEAN, mean},   {DNNL_ARG_VARIANCE, variance},
                                                   {DNNL_ARG_SCALE, scale}, {DNNL_ARG_SHIFT, shift}};
  std::vector<BoundPrimitive::Argument> of_backward{{DNNL_ARG_SRC, source},
                                                    {DNNL_ARG_MEAN, mean},
                                                    {DNNL_ARG_VARIANCE, variance},
                                                    {DNNL_ARG_SCALE, scale},
                                                    {DNNL_ARG_SHIFT, shift},  // oneDNN 2 wants it
                                                    {DNNL_ARG_DIFF_DST, make.filled(data, s.type)},
                                                    {DNNL_ARG_DIFF_SRC, make.filled(data, s.type)},
                                                    {DNNL_ARG_DIFF_SCALE, make.filled(channels, Type::f32)},
                                                    {DNNL_ARG_DIFF_SHIFT, make.filled(channels, Type::f32)}};
  if (relu) {  // which outputs are positive, which forward writes and backward reads
    const memory positive = make.empty(forward.workspace_desc());
    of_forward.push_back({DNNL_ARG_WORKSPACE, positive});
    of_backward.push_back({DNNL_ARG_WORKSPACE, positive});
  }
  BareKernel first =
      make.kernel<dnnl::batch_normalization_forward>("forward", "normalization", forward, std::move(of_forward));
  if (!is_backward(operation)) return {std::move(first)};
  first.run();  // also writes the statistics that backward reads
  return {
      make.kernel<dnnl::batch_normalization_backward>("backward", "normalization", backward, std::move(of_backward))};
}

}  // namespace lockstep::bench
