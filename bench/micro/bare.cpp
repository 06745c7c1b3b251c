// See bare.hpp. This file describes inner products and poolings for oneDNN 2 and 3; the backend describes convolutions.
#include "micro/bare.hpp"

#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/tensor_descriptor.hpp"
#include "core/aligned_buffer.hpp"
#include "core/bfloat16.hpp"
#include "layers/window.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::bench {

namespace {

using dnnl::memory;
using Type = memory::data_type;
using onednn::BoundPrimitive;

/// Makes kernels and owns their memory, which comes from the backend's allocator (with huge pages).
class Maker {
 public:
  explicit Maker(const onednn::Context& context)
      : context_(context), buffers_(std::make_shared<std::vector<AlignedBuffer>>()) {}

  [[nodiscard]] const onednn::Context& context() const { return context_; }

  [[nodiscard]] memory empty(const memory::desc& descriptor) const {
    buffers_->emplace_back(descriptor.get_size());
    return {descriptor, context_.engine, buffers_->back().data()};
  }

  [[nodiscard]] memory filled(const memory::desc& descriptor, Type type) const {
    memory result = empty(descriptor);
    std::vector<float> values(descriptor.get_size() / (type == Type::bf16 ? sizeof(BFloat16) : sizeof(float)));
    fill_like_weights(values);
    if (type == Type::bf16) {
      std::copy(values.begin(), values.end(), buffers_->back().as<BFloat16>().data());
    } else {
      std::copy(values.begin(), values.end(), buffers_->back().as<float>().data());
    }
    return result;
  }

  template <typename Primitive, typename Description>
  [[nodiscard]] BareKernel kernel(std::string part, std::string algorithm, const Description& description,
                                  std::vector<BoundPrimitive::Argument> arguments) const {
    const auto primitive = std::make_shared<BoundPrimitive>(context_, Primitive(description), std::move(arguments));
    return {std::move(part), std::move(algorithm), description.impl_info_str(),
            [primitive, buffers = buffers_] { primitive->run(); }};
  }

 private:
  const onednn::Context& context_;
  std::shared_ptr<std::vector<AlignedBuffer>> buffers_;
};

memory::desc any(const memory::dims& dims, Type type) { return {dims, type, memory::format_tag::any}; }

/// A layer's tensors as the bare primitive sees them. In bfloat16, gradients of activations are bfloat16 and those of
/// weights and biases are float32, as in the step.
struct Shapes {
  Shapes(const Graph& graph, const Operation& operation, std::size_t rows)
      : input(graph.tensors[operation.input]),
        output(graph.tensors[operation.output]),
        layer(graph.layers[operation.layer]),
        count(static_cast<memory::dim>(rows)),
        type(data_type_of(input)),
        output_type(data_type_of(output)),
        biased(layer.parameters.size() > 1) {}

  [[nodiscard]] memory::desc bias() const {
    return biased ? memory::desc({layer.parameters[1].shape[0]}, Type::f32, memory::format_tag::a) : memory::desc();
  }

  const TensorSpec& input;
  const TensorSpec& output;
  const LayerInfo& layer;
  memory::dim count;
  Type type;
  Type output_type;
  bool biased;
};

// Convolution ---------------------------------------------------------------------------------------------------------

void add_convolution(std::vector<BareKernel>& kernels, const Maker& make, const Graph& graph,
                     const Operation& operation, std::size_t rows, onednn::Algorithm algorithm) {
  const onednn::Context& context = make.context();
  const Shapes s(graph, operation, rows);
  const bool backward = operation.kind == OperationKind::convolution_backward;
  const std::string name = algorithm == onednn::Algorithm::winograd ? "winograd" : "direct";
  const onednn::Geometry geometry = convolution_geometry(operation.windows);
  const Shape& shape = s.layer.parameters.front().shape;  // [height, width, in, out]
  const memory::dims kernel_dims{shape[3], shape[2], shape[0], shape[1]};
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

// Dense ---------------------------------------------------------------------------------------------------------------

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

// Max pooling ---------------------------------------------------------------------------------------------------------

/// oneDNN's pooling, in the layout that the preceding convolution writes, since pooling has no preferred layout.
std::vector<BareKernel> pooling_kernels(const Maker& make, const Graph& graph, const Operation& operation,
                                        std::size_t rows) {
  const onednn::Context& context = make.context();
  const Shapes s(graph, operation, rows);
  const auto& pooling = std::get<MaxPooling2D>(s.layer.layer);
  const auto window = [&](std::int64_t input, int kernel, int stride) {
    return Window{.input = input, .kernel = kernel, .stride = stride, .padding = pooling.padding};
  };
  const Window down = window(s.input.height, pooling.pool_size.height, pooling.strides.height);
  const Window across = window(s.input.width, pooling.pool_size.width, pooling.strides.width);
  const memory::dims strides{down.stride, across.stride};
  const memory::dims size{down.kernel, across.kernel};
  const memory::dims before{down.pad_before(), across.pad_before()};
  const memory::dims after{down.pad_after(), across.pad_after()};
  const memory::desc source = descriptor_of(s.input, rows);
  const memory::desc output = descriptor_of(s.output, rows);
  constexpr auto training = dnnl::prop_kind::forward_training;
  constexpr auto max = dnnl::algorithm::pooling_max;
#if DNNL_VERSION_MAJOR >= 3
  const memory::dims dilation{0, 0};
  const dnnl::pooling_forward::primitive_desc forward(context.engine, training, max, source, output, strides, size,
                                                      dilation, before, after);
  const dnnl::pooling_backward::primitive_desc backward(context.engine, max, source, output, strides, size, dilation,
                                                        before, after, forward);
#else
  const dnnl::pooling_forward::primitive_desc forward(
      dnnl::pooling_forward::desc(training, max, source, output, strides, size, before, after), context.engine);
  const dnnl::pooling_backward::primitive_desc backward(
      dnnl::pooling_backward::desc(max, source, output, strides, size, before, after), context.engine, forward);
#endif
  const memory winners = make.empty(forward.workspace_desc());
  BareKernel first = make.kernel<dnnl::pooling_forward>("forward", "pooling", forward,
                                                        {{DNNL_ARG_SRC, make.filled(source, s.type)},
                                                         {DNNL_ARG_DST, make.filled(output, s.type)},
                                                         {DNNL_ARG_WORKSPACE, winners}});
  if (operation.kind == OperationKind::max_pooling) return {std::move(first)};
  first.run();  // writes the workspace with the maxima's positions, which backward reads
  return {make.kernel<dnnl::pooling_backward>("backward", "pooling", backward,
                                              {{DNNL_ARG_DIFF_DST, make.filled(output, s.type)},
                                               {DNNL_ARG_DIFF_SRC, make.filled(source, s.type)},
                                               {DNNL_ARG_WORKSPACE, winners}})};
}

}  // namespace

std::vector<BareKernel> bare_kernels(const onednn::Context& context, const Graph& graph, const Operation& operation,
                                     std::size_t rows) {
  const Maker make(context);
  std::vector<BareKernel> kernels;
  switch (operation.kind) {
    case OperationKind::convolution:
    case OperationKind::convolution_backward:
      add_convolution(kernels, make, graph, operation, rows, onednn::Algorithm::direct);
      if (may_have_winograd(graph, operation)) {
        try {
          add_convolution(kernels, make, graph, operation, rows, onednn::Algorithm::winograd);
        } catch (const dnnl::error&) {  // oneDNN does not implement this combination on this CPU
        }
      }
      return kernels;
    case OperationKind::dense:
    case OperationKind::dense_backward: return dense_kernels(make, graph, operation, rows);
    case OperationKind::max_pooling:
    case OperationKind::max_pooling_backward: return pooling_kernels(make, graph, operation, rows);
    default: return kernels;
  }
}

bool has_bare_kernel(const Operation& operation) noexcept {
  switch (operation.kind) {
    case OperationKind::convolution:
    case OperationKind::convolution_backward:
    case OperationKind::dense:
    case OperationKind::dense_backward:
    case OperationKind::max_pooling:
    case OperationKind::max_pooling_backward: return true;
    default: return false;
  }
}

bool may_have_winograd(const Graph& graph, const Operation& operation) {
  const bool convolves =
      operation.kind == OperationKind::convolution || operation.kind == OperationKind::convolution_backward;
  return convolves && onednn::has_winograd() && graph.tensors[operation.input].type == ElementType::float32;
}

}  // namespace lockstep::bench
