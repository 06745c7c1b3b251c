// Convolution on oneDNN: bias and activation fused, layouts chosen once.
#include "backend/cpu/convolution.hpp"

#include "backend/cpu/activation.hpp"
#include "backend/cpu/bias_gradient.hpp"
#include "backend/cpu/kernel.hpp"
#include "core/aligned_buffer.hpp"
#include "nn/window.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {

namespace {

using dnnl::memory;

Window window_of(std::int64_t input, int kernel, int stride, int dilation, Padding padding) {
  return {.input = input, .kernel = kernel, .stride = stride, .dilation = dilation, .padding = padding};
}

onednn::Geometry geometry_of(const TensorSpec& input, const Conv2D& conv) {
  const Window rows =
      window_of(input.height, conv.kernel_size.height, conv.strides.height, conv.dilation_rate.height, conv.padding);
  const Window columns =
      window_of(input.width, conv.kernel_size.width, conv.strides.width, conv.dilation_rate.width, conv.padding);
  return {.strides = {conv.strides.height, conv.strides.width},
          .dilation = {conv.dilation_rate.height - 1, conv.dilation_rate.width - 1},
          .pad_before = {rows.pad_before(), columns.pad_before()},
          .pad_after = {rows.pad_after(), columns.pad_after()}};
}

memory::dims kernel_dims(const LayerInfo& layer) {
  const Shape& shape = layer.parameters.front().shape;  // [height, width, in, out]
  return {shape[3], shape[2], shape[0], shape[1]};
}

memory::format_tag tag_of(const TensorSpec& tensor) {
  if (tensor.block == tensor.channels && !tensor.blocked) return memory::format_tag::nhwc;
  if (tensor.block == 16) return memory::format_tag::nChw16c;
  if (tensor.block == 8) return memory::format_tag::nChw8c;
  return memory::format_tag::nchw;
}

memory::dims dims_of(const TensorSpec& tensor, std::size_t rows) {
  return {static_cast<memory::dim>(rows), tensor.channels, tensor.height, tensor.width};
}

/// Before blocks, one channel has no layout: whatever plain descriptor oneDNN picks describes the same memory. Asking
/// it to pick finds kernels for such images that a named layout misses (oneDNN 3.7 falls to its reference code
/// otherwise).
memory::desc source_for_choice(const TensorSpec& tensor, const TensorSpec& output, std::size_t rows) {
  if (tensor.channels != 1 || !output.blocked) return descriptor_of(tensor, rows);
  return {dims_of(tensor, rows), data_type_of(tensor), memory::format_tag::any};
}

bool is_plain(const memory::desc& descriptor, const TensorSpec& tensor, std::size_t rows) {
  const std::size_t size = tensor.type == ElementType::bfloat16 ? 2 : 4;
  return descriptor.get_size() == rows * static_cast<std::size_t>(tensor.elements()) * size;
}

/// True for a convolution of a slice of the input channels: what it gives is a part of a sum over the ranks, to which
/// bias and activation are added later.
bool gives_part(const Graph& graph, const Operation& operation) {
  return graph.tensors[operation.input].whole_channels > 0;
}

/// What the convolution itself writes. Parts are summed up in float32.
TensorSpec result_of(const Graph& graph, const Operation& operation) {
  TensorSpec result = graph.tensors[operation.output];
  if (gives_part(graph, operation)) result.type = ElementType::float32;
  return result;
}

memory::desc bias_descriptor(const LayerInfo& layer, memory::data_type type) {
  if (layer.parameters.size() < 2) return {};
  return {{layer.parameters[1].shape[0]}, type, memory::format_tag::a};
}

/// Where Winograd pays: measured a quarter to a third faster than direct for 3 x 3 kernels over sixteens of channels,
/// at a rounding of 4e-6 of the gradient. A rule and no clock, so that every run chooses alike.
bool winograd_pays(const TensorSpec& input, const TensorSpec& output, const Conv2D& conv) {
  const bool fits = conv.kernel_size == Extent(3) && conv.strides == Extent(1) && conv.dilation_rate == Extent(1);
  const bool sixteens = input.channels % 16 == 0 && output.channels % 16 == 0;
  return onednn::has_winograd() && fits && sixteens && input.type == ElementType::float32 && output.width >= 8;
}

/// Winograd where it pays and oneDNN has it for this CPU and these layouts, else direct.
template <typename Describe>
auto best_way(bool winograd, const Describe& describe) {
  if (winograd) {
    try {
      return describe(onednn::ConvolutionWay::winograd);
    } catch (const dnnl::error&) {  // not implemented
    }
  }
  return describe(onednn::ConvolutionWay::direct);
}

dnnl::convolution_forward::primitive_desc describe_forward(const onednn::Context& context, const Graph& graph,
                                                           const Operation& operation, std::size_t rows,
                                                           const memory::desc& src, const memory::desc& dst) {
  const LayerInfo& layer = graph.layers[operation.layer];
  const TensorSpec& input = graph.tensors[operation.input];
  const memory::desc weights(kernel_dims(layer), data_type_of(input), memory::format_tag::any);
  const auto& conv = std::get<Conv2D>(layer.layer);
  const bool part = gives_part(graph, operation);
  const memory::desc bias = part ? memory::desc() : bias_descriptor(layer, memory::data_type::f32);
  const dnnl::algorithm activation = algorithm_of(part ? ActivationFunction::linear : operation.activation);
  const auto describe = [&](const memory::desc& source) {
    const auto of_way = [&](onednn::ConvolutionWay way) {
      return onednn::convolution_forward(context, source, weights, bias, dst, geometry_of(input, conv), activation,
                                         way);
    };
    return best_way(winograd_pays(input, graph.tensors[operation.output], conv), of_way);
  };
  auto chosen = describe(src);
  return is_plain(chosen.src_desc(), input, rows) ? chosen : describe(descriptor_of(input, rows));
}

/// Copies `from` to `to` before or after a primitive where their layouts differ; else both are the same memory.
class Bridge {
 public:
  Bridge() = default;
  Bridge(const onednn::Context& context, const memory::desc& arena, void* arena_data, const memory::desc& wanted,
         bool arena_is_source)
      : wanted_(wanted, context.engine, arena_data) {
    if (arena == wanted) return;
    scratch_ = AlignedBuffer(wanted.get_size());
    wanted_ = memory(wanted, context.engine, scratch_.data());
    const memory outside(arena, context.engine, arena_data);
    copy_ = arena_is_source ? onednn::reorder(context, outside, wanted_) : onednn::reorder(context, wanted_, outside);
  }
  [[nodiscard]] const memory& wanted() const noexcept { return wanted_; }
  void run() const {
    if (copy_) copy_.run();
  }

 private:
  AlignedBuffer scratch_;
  memory wanted_;
  onednn::BoundPrimitive copy_;
};

/// A parameter's gradient where the examples come in several slices: oneDNN overwrites, so the first slice writes to
/// the arena and each other one to memory of its own, which is then added.
class Sum {
 public:
  Sum() = default;
  Sum(const KernelScope& scope, int parameter, std::size_t count)
      : count_(count), sum_(scope.weights_gradient(parameter)), part_(sum_) {
    if (scope.operation.slice == 0) return;
    memory_ = AlignedBuffer(count * sizeof(float));
    part_ = memory_.as<float>().data();
  }
  [[nodiscard]] float* part() const noexcept { return part_; }
  void add() const noexcept {
    if (part_ == sum_) return;
    for (std::size_t i = 0; i < count_; ++i) sum_[i] += part_[i];
  }

 private:
  std::size_t count_ = 0;
  float* sum_ = nullptr;
  float* part_ = nullptr;
  AlignedBuffer memory_;
};

class ConvolutionForward final : public Kernel {
 public:
  explicit ConvolutionForward(const KernelScope& scope)
      : descriptors_(scope.dnnl, scope.graph, scope.operation, scope.rows),
        weights_(scope.dnnl, scope.master(), scope.weights(scope.operation.parameter),
                 descriptors_.forward.weights_desc(), true) {
    const auto& forward = descriptors_.forward;
    const dnnl::engine& engine = scope.dnnl.engine;
    const bool part = gives_part(scope.graph, scope.operation);
    void* result = part ? scope.weights_gradient(scope.operation.sum) : scope.value<void>(scope.operation.output);
    std::vector<onednn::BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, memory(forward.src_desc(), engine, scope.value<void>(scope.operation.input))},
        {DNNL_ARG_WEIGHTS, weights_.wanted()},
        {DNNL_ARG_DST, memory(forward.dst_desc(), engine, result)}};
    if (scope.layer().parameters.size() > 1 && !part) {
      arguments.push_back(
          {DNNL_ARG_BIAS, memory(forward.bias_desc(), engine, scope.weights(scope.operation.parameter + 1))});
    }
    forward_ = {scope.dnnl, dnnl::convolution_forward(forward), std::move(arguments)};
  }

  void run(const StepContext& /*context*/) override {
    weights_.run();
    forward_.run();
  }
  [[nodiscard]] std::string implementation() const override { return descriptors_.forward.impl_info_str(); }

 private:
  ConvolutionDescriptors descriptors_;
  Bridge weights_;
  onednn::BoundPrimitive forward_;
};

class ConvolutionBackward final : public Kernel {
 public:
  explicit ConvolutionBackward(const KernelScope& scope)
      : descriptors_(scope.dnnl, scope.graph, scope.operation, scope.rows),
        input_activation_(scope.operation.input_activation),
        count_(scope.rows * static_cast<std::size_t>(scope.input().elements())),
        input_type_(scope.input().type),
        threads_(scope.threads),
        input_(scope.value<std::byte>(scope.operation.input)) {
    const dnnl::engine& engine = scope.dnnl.engine;
    const int parameter = scope.operation.parameter;
    const auto& weights = descriptors_.backward_weights;
    output_gradient_ = Bridge(scope.dnnl, descriptor_of(scope.output(), scope.rows),
                              scope.gradient<void>(scope.operation.output), weights.diff_dst_desc(), true);
    weights_sum_ = Sum(scope, parameter, scope.master().get_size() / sizeof(float));
    weights_gradient_ = Bridge(scope.dnnl, scope.master(), weights_sum_.part(), weights.diff_weights_desc(), false);
    std::vector<onednn::BoundPrimitive::Argument> arguments{
        {DNNL_ARG_SRC, memory(weights.src_desc(), engine, scope.value<void>(scope.operation.input))},
        {DNNL_ARG_DIFF_DST, output_gradient_.wanted()},
        {DNNL_ARG_DIFF_WEIGHTS, weights_gradient_.wanted()}};
    if (gives_part(scope.graph, scope.operation)) {
      bias_gradient_ = BiasGradient(scope);
    } else if (scope.layer().parameters.size() > 1) {
      const memory::desc bias = bias_descriptor(scope.layer(), memory::data_type::f32);
      bias_sum_ = Sum(scope, parameter + 1, bias.get_size() / sizeof(float));
      arguments.push_back({DNNL_ARG_DIFF_BIAS, memory(bias, engine, bias_sum_.part())});
    }
    backward_weights_ = {scope.dnnl, dnnl::convolution_backward_weights(weights), std::move(arguments)};
    if (scope.operation.input_gradient) bind_backward_data(scope);
  }

  void run(const StepContext& /*context*/) override {
    output_gradient_.run();
    if (backward_data_) {
      weights_.run();
      backward_data_.run();
      if (input_activation_ != ActivationFunction::linear) derive();
    }
    backward_weights_.run();
    weights_gradient_.run();
    weights_sum_.add();
    bias_sum_.add();
    bias_gradient_.run();
  }

  [[nodiscard]] std::string implementation() const override {
    std::string names = descriptors_.backward_weights.impl_info_str();
    if (backward_data_) names += ", " + data_implementation_;
    return names;
  }

 private:
  void bind_backward_data(const KernelScope& scope) {
    const dnnl::engine& engine = scope.dnnl.engine;
    const memory::desc weights_any(kernel_dims(scope.layer()), data_type_of(scope.input()), memory::format_tag::any);
    const auto data = onednn::convolution_backward_data(scope.dnnl, descriptor_of(scope.input(), scope.rows),
                                                        weights_any, descriptors_.backward_weights.diff_dst_desc(),
                                                        descriptors_.geometry, descriptors_.forward);
    weights_ = Bridge(scope.dnnl, scope.master(), scope.weights(scope.operation.parameter), data.weights_desc(), true);
    gradient_ = scope.gradient<std::byte>(scope.operation.input);
    backward_data_ = {scope.dnnl,
                      dnnl::convolution_backward_data(data),
                      {{DNNL_ARG_DIFF_DST, output_gradient_.wanted()},
                       {DNNL_ARG_WEIGHTS, weights_.wanted()},
                       {DNNL_ARG_DIFF_SRC, memory(data.diff_src_desc(), engine, gradient_)}}};
    data_implementation_ = data.impl_info_str();
  }

  void derive() const {
    if (input_type_ == ElementType::bfloat16) {
      derive_as<BFloat16>();
    } else {
      derive_as<float>();
    }
  }

  template <typename T>
  void derive_as() const {
    constexpr std::size_t piece = 4096;
    const std::size_t pieces = (count_ + piece - 1) / piece;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::size_t p = 0; p < pieces; ++p) {
      const std::size_t begin = p * piece;
      apply_derivative(input_activation_, reinterpret_cast<const T*>(input_) + begin,
                       reinterpret_cast<T*>(gradient_) + begin, std::min(piece, count_ - begin));
    }
  }

  ConvolutionDescriptors descriptors_;
  ActivationFunction input_activation_;
  std::size_t count_;
  ElementType input_type_;
  int threads_;
  std::byte* input_;
  std::byte* gradient_ = nullptr;
  Bridge output_gradient_;
  Bridge weights_gradient_;
  Sum weights_sum_;
  Sum bias_sum_;
  BiasGradient bias_gradient_;
  Bridge weights_;
  onednn::BoundPrimitive backward_weights_;
  onednn::BoundPrimitive backward_data_;
  std::string data_implementation_;
};

/// Of the slice of the input channels that the ranks have of a convolution, this one has nothing; but it knows the
/// bias.
class BiasBackward final : public Kernel {
 public:
  explicit BiasBackward(const KernelScope& scope) : gradient_(scope) {}
  void run(const StepContext& /*context*/) override { gradient_.run(); }

 private:
  BiasGradient gradient_;
};

/// What a convolution would like to write, if that is blocks.
bool choose_output_blocks(const onednn::Context& context, Graph& graph, const Operation& operation, std::size_t rows) {
  const TensorSpec& input = graph.tensors[operation.input];
  TensorSpec& output = graph.tensors[operation.output];
  output.blocked = true;
  const memory::data_type type = data_type_of(result_of(graph, operation));
  const memory::desc any_dst(dims_of(output, rows), type, memory::format_tag::any);
  const auto chosen =
      describe_forward(context, graph, operation, rows, source_for_choice(input, output, rows), any_dst);
  for (const std::int64_t block : {16, 8}) {
    if (output.channels % block != 0) continue;
    output.block = block;
    if (chosen.dst_desc() == descriptor_of(result_of(graph, operation), rows)) return true;
  }
  return false;
}

/// A model's input of several channels lies as its first convolution likes it.
void choose_input_layout(const onednn::Context& context, Graph& graph, const Operation& operation, std::size_t rows) {
  TensorSpec& input = graph.tensors[operation.input];
  const TensorSpec& output = graph.tensors[operation.output];
  const memory::desc any_src(dims_of(input, rows), data_type_of(input), memory::format_tag::any);
  const memory::desc any_dst(dims_of(output, rows), data_type_of(output), memory::format_tag::any);
  const auto chosen = describe_forward(context, graph, operation, rows, any_src, any_dst);
  input.block = 1;
  if (chosen.src_desc() != descriptor_of(input, rows)) input.block = input.channels;
}

/// What ranks hand each other lies as its convolution likes it: in blocks, if there are so many channels.
void choose_blocks_of_slice(TensorSpec& slice) {
  for (const std::int64_t block : {8, 16}) {
    if (slice.channels % block != 0 || slice.channels == 0) continue;
    slice.block = block;
    slice.blocked = true;
  }
}

/// False where some convolution cannot have blocks.
bool choose_blocks(const onednn::Context& context, Graph& graph, std::size_t rows) {
  for (const TensorSpec& tensor : graph.tensors) {
    const bool spatial = tensor.height * tensor.width > 1;
    if (spatial && (tensor.keras_order || tensor.alias >= 0)) return false;
  }
  int unpacked = -1;
  for (const Operation& operation : graph.forward) {
    if (operation.kind == OperationKind::unpack) unpacked = operation.output;
    if (operation.kind == OperationKind::convolution) {
      if (operation.input == unpacked) choose_blocks_of_slice(graph.tensors[unpacked]);
      const auto is_empty = [&](int tensor) { return graph.tensors[tensor].elements() == 0; };
      if (is_empty(operation.input) || is_empty(operation.output)) continue;  // of a divided layer, nothing is its own
      if (operation.input == 0 && graph.tensors[0].channels > 1) choose_input_layout(context, graph, operation, rows);
      if (!choose_output_blocks(context, graph, operation, rows)) return false;
    } else if (operation.output > 0 && operation.input >= 0 && operation.kind != OperationKind::dense) {
      graph.tensors[operation.output].block = graph.tensors[operation.input].block;
      graph.tensors[operation.output].blocked = graph.tensors[operation.input].blocked;
    }
  }
  return true;
}

}  // namespace

memory::data_type data_type_of(const TensorSpec& tensor) {
  return tensor.type == ElementType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

dnnl::algorithm algorithm_of(ActivationFunction activation) {
  switch (activation) {
    case ActivationFunction::relu: return dnnl::algorithm::eltwise_relu;
    case ActivationFunction::sigmoid: return dnnl::algorithm::eltwise_logistic;
    case ActivationFunction::tanh: return dnnl::algorithm::eltwise_tanh;
    case ActivationFunction::linear:
    case ActivationFunction::softmax: break;
  }
  return dnnl::algorithm::undef;
}

memory::desc descriptor_of(const TensorSpec& tensor, std::size_t rows) {
  return {dims_of(tensor, rows), data_type_of(tensor), tag_of(tensor)};
}

memory::desc keras_kernel_descriptor(const LayerInfo& layer) {
  return {kernel_dims(layer), memory::data_type::f32, memory::format_tag::hwio};
}

ConvolutionDescriptors::ConvolutionDescriptors(const onednn::Context& context, const Graph& graph,
                                               const Operation& operation, std::size_t rows) {
  const LayerInfo& layer = graph.layers[operation.layer];
  const TensorSpec& input = graph.tensors[operation.input];
  const TensorSpec output = result_of(graph, operation);
  geometry = geometry_of(input, std::get<Conv2D>(layer.layer));
  forward = describe_forward(context, graph, operation, rows, source_for_choice(input, output, rows),
                             descriptor_of(output, rows));
  // The gradient of a float32 output is brought to the input's type first, so backward computes in one type.
  TensorSpec output_gradient = output;
  output_gradient.type = input.type;
  const bool part = gives_part(graph, operation);
  const memory::desc bias = part ? memory::desc() : bias_descriptor(layer, memory::data_type::f32);
  const auto describe = [&](const memory::desc& source) {
    const auto of_way = [&](onednn::ConvolutionWay way) {
      return onednn::convolution_backward_weights(context, source,
                                                  {kernel_dims(layer), memory::data_type::f32, memory::format_tag::any},
                                                  bias, descriptor_of(output_gradient, rows), geometry, forward, way);
    };
    return best_way(winograd_pays(input, output, std::get<Conv2D>(layer.layer)), of_way);
  };
  backward_weights = describe(source_for_choice(input, output, rows));
  if (!is_plain(backward_weights.src_desc(), input, rows)) backward_weights = describe(descriptor_of(input, rows));
  master = input.type == ElementType::float32 ? forward.weights_desc() : backward_weights.diff_weights_desc();
}

void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t rows) {
  if (graph.plain || !choose_blocks(context, graph, rows)) {
    for (TensorSpec& tensor : graph.tensors) {
      tensor.block = tensor.channels;
      tensor.blocked = false;
    }
  }
}

std::unique_ptr<Kernel> make_convolution(const KernelScope& scope) {
  return std::make_unique<ConvolutionForward>(scope);
}

std::unique_ptr<Kernel> make_convolution_backward(const KernelScope& scope) {
  if (scope.input().elements() == 0) return std::make_unique<BiasBackward>(scope);
  return std::make_unique<ConvolutionBackward>(scope);
}

}  // namespace lockstep
