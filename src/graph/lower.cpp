// See lower.hpp. The model is a chain, so lowering is one pass: each layer appends an operation, modifies the last one,
// or reinterprets the shape of the last tensor.
#include "graph/lower.hpp"

#include "graph/autodiff.hpp"
#include "layers/activation_functions.hpp"
#include "layers/layer_registry.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

/// Maps a shape of any rank to height, width and channels. The last axis becomes channels.
void set_extents(TensorSpec& tensor, const Shape& shape) {
  const std::size_t rank = shape.rank();
  tensor.channels = rank > 0 ? shape[rank - 1] : 1;
  tensor.height = rank >= 3 ? shape.elements() / (shape[rank - 1] * shape[rank - 2]) : 1;
  tensor.width = rank >= 2 ? shape[rank - 2] : 1;
}

class Lowering {
 public:
  Lowering(const Sequential& architecture, const Loss& loss, bool mixed_bfloat16, std::optional<double> input_scale,
           std::vector<Metric> metrics)
      : input_scale_(input_scale) {
    graph_.layers = architecture.layers();
    graph_.loss = loss;
    graph_.metrics = std::move(metrics);
    graph_.mixed_bfloat16 = mixed_bfloat16;
  }

  Graph run() {
    graph_.tensors.emplace_back();
    graph_.tensors[0].name = graph_.layers[0].name;
    set_extents(graph_.tensors[0], graph_.layers[0].output_shape);
    activations_.push_back(ActivationFunction::linear);
    graph_.forward.push_back({.kind = OperationKind::gather, .layer = 0, .output = 0});
    for (std::size_t i = 1; i < graph_.layers.size(); ++i) add_layer(static_cast<int>(i));
    if (input_scale_) graph_.input.byte_scale = *input_scale_;
    graph_.tensors[current_].requires_channels_last = true;  // what predict returns
    add_loss();
    choose_types();
    add_backward(graph_);
    return std::move(graph_);
  }

  // The functions that LayerTraits<L>::lower calls. They act on the layer `layer_`.
  using Kind = OperationKind;

  /// Appends an operation from the last tensor to a new one of the layer's output shape.
  Operation& append(OperationKind kind) {
    TensorSpec tensor;
    set_extents(tensor, info().output_shape);
    return append(kind, std::move(tensor));
  }

  /// The same for an operation that has the layer's parameters.
  void append_weighted(OperationKind kind) { append(kind).parameter = first_parameter_; }

  /// The same for an elementwise operation. Its tensor has the shape of the last one, which keeps the layout across a
  /// Flatten that was lowered to nothing.
  Operation& append_elementwise(OperationKind kind) {
    const TensorSpec& last = graph_.tensors[current_];
    TensorSpec tensor;
    tensor.height = last.height;
    tensor.width = last.width;
    tensor.channels = last.channels;
    return append(kind, std::move(tensor));
  }

  /// Fuses the function into the last operation if both support it; otherwise appends an operation.
  void activate(ActivationFunction function) {
    if (function == ActivationFunction::linear) return;
    if (function == ActivationFunction::softmax) {
      graph_.tensors[current_].requires_channels_last = true;
      append(OperationKind::softmax);
      graph_.tensors[current_].requires_channels_last = true;
      return;
    }
    const bool from_output = derivative_of(function) == Derivative::from_output;
    const Operation& last = graph_.forward.back();
    const bool fuses = from_output && traits_of(last).fuses_activation && last.output == current_ &&
                       last.activation == ActivationFunction::linear;
    if (!fuses) append_elementwise(OperationKind::activation);
    graph_.forward.back().activation = function;
    if (from_output) activations_[current_] = function;  // else activation_backward has what the derivative needs
  }

  /// Adds an alias of the last tensor with the layer's output shape. Requires channels last.
  void view() {
    const Shape& shape = info().output_shape;
    if (graph_.forward.size() == 1) {  // only gather has run, which can write any shape
      set_extents(graph_.tensors[0], shape);
      return;
    }
    TensorSpec& base = graph_.tensors[current_];
    base.requires_channels_last = true;
    TensorSpec alias;
    alias.name = info().name;
    set_extents(alias, shape);
    alias.requires_channels_last = true;
    alias.alias = base.alias >= 0 ? base.alias : current_;
    graph_.tensors.push_back(alias);
    activations_.push_back(activations_[current_]);
    current_ = static_cast<int>(graph_.tensors.size()) - 1;
  }

  /// Whether the next layer that depends on the order of elements accepts any order (ElementOrder::absorbed).
  [[nodiscard]] bool is_order_absorbed_later() const {
    const auto next = std::find_if(graph_.layers.begin() + layer_ + 1, graph_.layers.end(), [](const LayerInfo& later) {
      return element_order_of(later.layer) != ElementOrder::passed_on;
    });
    return next != graph_.layers.end() && element_order_of(next->layer) == ElementOrder::absorbed;
  }

  /// Makes gather scale the input. Throws UsageError if an earlier layer computes something.
  void rescale_input(double scale, double offset) {
    if (graph_.forward.size() > 1) {
      throw UsageError("layer '" + info().name + "' (" + info().class_name +
                       ") stands behind layers that compute, but Lockstep rescales a model's input only; put it "
                       "directly behind the Input");
    }
    InputScaling& input = graph_.input;
    input.byte_scale = 1;
    input.scale *= scale;
    input.offset = input.offset * scale + offset;
  }

 private:
  [[nodiscard]] const LayerInfo& info() const { return graph_.layers[layer_]; }

  void add_layer(int layer) {
    layer_ = layer;
    first_parameter_ = static_cast<int>(graph_.parameters.size());
    for (const ParameterInfo& parameter : info().parameters) {
      ParameterSpec spec{.name = info().name + "/" + parameter.name, .info = parameter};
      if (!parameter.trainable) {
        spec.rule = UpdateRule::moving_average;
        spec.momentum = static_cast<float>(parameter.momentum);
      }
      graph_.parameters.push_back(std::move(spec));
    }
    std::visit([this]<typename L>(const L& any) { LayerTraits<L>::lower(any, *this); }, info().layer);
  }

  Operation& append(OperationKind kind, TensorSpec output) {
    output.name = info().name;
    graph_.tensors.push_back(std::move(output));
    activations_.push_back(ActivationFunction::linear);
    const int input = std::exchange(current_, static_cast<int>(graph_.tensors.size()) - 1);
    graph_.forward.push_back(
        {.kind = kind, .layer = layer_, .input = input, .output = current_, .input_activation = activations_[input]});
    return graph_.forward.back();
  }

  void add_loss() {
    const Shape& output = graph_.layers.back().output_shape;
    if (needs_class_vector(graph_.loss) && output.rank() != 1) {
      throw UsageError("the loss " + std::string(keras_name(graph_.loss)) +
                       " needs one vector of classes per example, but '" + graph_.layers.back().name + "' gives " +
                       output.to_string_with_batch() + "; end the model with Flatten() and Dense(classes)");
    }
    check(graph_.metrics, graph_.loss, output.rank());
    constexpr std::size_t line = 16;  // floats of a cache line
    const std::size_t storage = (first_metric_sum + num_sums(graph_.metrics) + line - 1) / line * line;
    ParameterSpec metrics{.name = "metrics",
                          .info = {"metrics", Shape{static_cast<std::int64_t>(storage)}, Initializer::zeros, false},
                          .storage = storage,
                          .rule = UpdateRule::assign};
    graph_.parameters.push_back(std::move(metrics));
    graph_.forward.push_back({.kind = OperationKind::loss,
                              .layer = static_cast<int>(graph_.layers.size()) - 1,
                              .input = current_,
                              .parameter = graph_.metrics_parameter(),
                              .input_activation = activations_[current_]});
  }

  /// In mixed precision all tensors before the output of the last weighted layer are bfloat16.
  void choose_types() {
    if (!graph_.mixed_bfloat16) return;
    int last_weighted = 0;
    for (const Operation& operation : graph_.forward) {
      if (traits_of(operation).has_kernel) last_weighted = operation.output;
    }
    for (int tensor = 0; tensor < last_weighted; ++tensor) graph_.tensors[tensor].type = ElementType::bfloat16;
  }

  std::optional<double> input_scale_;
  int layer_ = 0;            ///< the layer being lowered
  int first_parameter_ = 0;  ///< of that layer
  Graph graph_;
  std::vector<ActivationFunction> activations_;  ///< the activation that each tensor's producer fused
  int current_ = 0;                              ///< the tensor that holds the last layer's output
};

}  // namespace

Graph lower(const Sequential& architecture, const Loss& loss, bool mixed_bfloat16, std::optional<double> input_scale,
            std::vector<Metric> metrics) {
  return Lowering(architecture, loss, mixed_bfloat16, input_scale, std::move(metrics)).run();
}

}  // namespace lockstep
