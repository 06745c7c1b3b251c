// See lower.hpp. The model is a chain, so lowering is one walk: `current` is the tensor that holds the last layer's
// output, and each layer appends an operation, changes the last one, or merely changes how `current` is seen.
#include "plan/lower.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <variant>

namespace lockstep {

namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

/// Height, width and channels as which a shape of any rank is seen: the last axis is channels.
void set_extents(TensorSpec& tensor, const Shape& shape) {
  const std::size_t rank = shape.rank();
  tensor.channels = rank > 0 ? shape[rank - 1] : 1;
  tensor.height = rank >= 3 ? shape.elements() / (shape[rank - 1] * shape[rank - 2]) : 1;
  tensor.width = rank >= 2 ? shape[rank - 2] : 1;
}

class Lowering {
 public:
  Lowering(const Sequential& architecture, const Loss& loss, bool mixed_bfloat16, std::optional<double> input_scale)
      : input_scale_(input_scale) {
    graph_.layers = architecture.layers();
    graph_.loss = loss;
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
    graph_.tensors[current_].keras_order = true;  // what predict returns
    add_loss();
    choose_types();
    add_backward();
    return std::move(graph_);
  }

 private:
  void add_layer(int layer) {
    const LayerInfo& info = graph_.layers[layer];
    const int first_parameter = static_cast<int>(graph_.parameters.size());
    for (const ParameterInfo& parameter : info.parameters) {
      ParameterSpec spec{.name = info.name + "/" + parameter.name, .info = parameter};
      if (!parameter.trainable) {
        spec.rule = UpdateRule::moving_average;
        spec.momentum = static_cast<float>(std::get<BatchNormalization>(info.layer).momentum);
      }
      graph_.parameters.push_back(std::move(spec));
    }
    std::visit(
        Overloaded{
            [](const Input&) {},
            [&](const Reshape&) { reshape(layer); },
            [&](const Rescaling& rescaling) { rescale(layer, rescaling); },
            [&](const Flatten&) {
              if (!dense_takes_it_as_it_lies(layer)) reshape(layer);
            },
            [&](const Conv2D& conv) { weighted(OperationKind::convolution, layer, first_parameter, conv.activation); },
            [&](const Dense& dense) { weighted(OperationKind::dense, layer, first_parameter, dense.activation); },
            [&](const MaxPooling2D&) { append(OperationKind::max_pooling, layer); },
            [&](const AveragePooling2D&) { append(OperationKind::average_pooling, layer); },
            [&](const GlobalAveragePooling2D&) { append(OperationKind::average_pooling, layer); },
            [&](const Dropout& dropout) {
              if (dropout.rate > 0) append(OperationKind::dropout, layer);
            },
            [&](const BatchNormalization&) {
              append(OperationKind::batch_normalization, layer).parameter = first_parameter;
            },
            [&](const Activation& activation) { activate(layer, activation.function); },
        },
        info.layer);
  }

  /// A new tensor of the layer's output shape, produced from `current_`.
  Operation& append(OperationKind kind, int layer) {
    const LayerInfo& info = graph_.layers[layer];
    TensorSpec tensor;
    tensor.name = info.name;
    // After a Flatten that cost nothing, elementwise layers go on in the shape the memory has.
    const bool elementwise = kind == OperationKind::dropout || kind == OperationKind::activation;
    if (elementwise) {
      tensor.height = graph_.tensors[current_].height;
      tensor.width = graph_.tensors[current_].width;
      tensor.channels = graph_.tensors[current_].channels;
    } else {
      set_extents(tensor, info.output_shape);
    }
    graph_.tensors.push_back(tensor);
    activations_.push_back(ActivationFunction::linear);
    const int output = static_cast<int>(graph_.tensors.size()) - 1;
    graph_.forward.push_back({.kind = kind,
                              .layer = layer,
                              .input = current_,
                              .output = output,
                              .input_activation = activations_[current_]});
    current_ = output;
    return graph_.forward.back();
  }

  void weighted(OperationKind kind, int layer, int first_parameter, ActivationFunction activation) {
    append(kind, layer).parameter = first_parameter;
    activate(layer, activation);
  }

  void activate(int layer, ActivationFunction activation) {
    if (activation == ActivationFunction::linear) return;
    if (activation == ActivationFunction::softmax) {
      graph_.tensors[current_].keras_order = true;
      append(OperationKind::softmax, layer);
      graph_.tensors[current_].keras_order = true;
      return;
    }
    Operation& last = graph_.forward.back();
    const bool can_fuse = last.kind == OperationKind::convolution || last.kind == OperationKind::dense ||
                          last.kind == OperationKind::batch_normalization;
    if (!can_fuse || last.output != current_ || last.activation != ActivationFunction::linear) {
      append(OperationKind::activation, layer);
    }
    graph_.forward.back().activation = activation;
    activations_[current_] = activation;
  }

  /// True if the next layer that minds the order of elements is a Dense: its kernel's rows follow the memory's order.
  [[nodiscard]] bool dense_takes_it_as_it_lies(int layer) const {
    for (std::size_t next = layer + 1; next < graph_.layers.size(); ++next) {
      const Layer& candidate = graph_.layers[next].layer;
      if (std::holds_alternative<Dense>(candidate)) return true;
      const auto* activation = std::get_if<Activation>(&candidate);
      const bool elementwise = std::holds_alternative<Dropout>(candidate) ||
                               std::holds_alternative<Flatten>(candidate) ||
                               (activation != nullptr && activation->function != ActivationFunction::softmax);
      if (!elementwise) return false;
    }
    return false;
  }

  void reshape(int layer) {
    const Shape& shape = graph_.layers[layer].output_shape;
    if (graph_.forward.size() == 1) {  // nothing but gather has seen it
      set_extents(graph_.tensors[0], shape);
      return;
    }
    TensorSpec& base = graph_.tensors[current_];
    base.keras_order = true;
    TensorSpec alias;
    alias.name = graph_.layers[layer].name;
    set_extents(alias, shape);
    alias.keras_order = true;
    alias.alias = base.alias >= 0 ? base.alias : current_;
    graph_.tensors.push_back(alias);
    activations_.push_back(activations_[current_]);
    current_ = static_cast<int>(graph_.tensors.size()) - 1;
  }

  /// Costs nothing while nothing but gather has seen the input.
  void rescale(int layer, const Rescaling& rescaling) {
    if (graph_.forward.size() > 1) {
      throw UsageError("layer '" + graph_.layers[layer].name +
                       "' (Rescaling) stands behind layers that compute, but Lockstep rescales a model's input only; "
                       "put it directly behind the Input");
    }
    InputScaling& input = graph_.input;
    input.byte_scale = 1;
    input.scale *= rescaling.scale;
    input.offset = input.offset * rescaling.scale + rescaling.offset;
  }

  void add_loss() {
    const Shape& output = graph_.layers.back().output_shape;
    if (!std::holds_alternative<MeanSquaredError>(graph_.loss) && output.rank() != 1) {
      throw UsageError("the loss " + std::string(name_of(graph_.loss)) +
                       " needs one vector of classes an example, but '" + graph_.layers.back().name + "' gives " +
                       output.to_string_with_batch() + "; end the model with Flatten() and Dense(classes)");
    }
    ParameterSpec metrics{.name = "metrics",
                          .info = {"metrics", Shape{metric_places}, Initializer::zeros, false},
                          .storage = metric_places,
                          .rule = UpdateRule::assign};
    graph_.parameters.push_back(std::move(metrics));
    graph_.forward.push_back({.kind = OperationKind::loss,
                              .layer = static_cast<int>(graph_.layers.size()) - 1,
                              .input = current_,
                              .parameter = graph_.metrics_parameter(),
                              .input_activation = activations_[current_]});
  }

  /// In mixed precision everything is bfloat16 up to the last weighted layer's output, which is float32 again.
  void choose_types() {
    if (!graph_.mixed_bfloat16) return;
    int last_weighted = 0;
    for (const Operation& operation : graph_.forward) {
      const bool weighted = operation.kind == OperationKind::convolution || operation.kind == OperationKind::dense;
      if (weighted) last_weighted = operation.output;
    }
    for (int tensor = 0; tensor < last_weighted; ++tensor) graph_.tensors[tensor].type = ElementType::bfloat16;
  }

  void add_backward() {
    // A tensor's gradient is wanted if something before it learns.
    std::vector<bool> wanted(graph_.tensors.size(), false);
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      if (graph_.tensors[t].alias >= 0) wanted[t] = wanted[graph_.tensors[t].alias];
      for (const Operation& operation : graph_.forward) {
        if (operation.output != static_cast<int>(t)) continue;
        wanted[t] = operation.parameter >= 0 || (operation.input >= 0 && wanted[operation.input]);
      }
    }
    // NOLINTNEXTLINE(modernize-loop-convert): clang 14 cannot compile std::views::reverse of libstdc++
    for (auto operation = graph_.forward.rbegin(); operation != graph_.forward.rend(); ++operation) {
      if (operation->kind == OperationKind::loss) {
        operation->input_gradient = wanted[operation->input];
        continue;
      }
      if (operation->kind == OperationKind::gather || !wanted[operation->output]) continue;
      Operation backward = *operation;
      backward.kind = backward_of(operation->kind);
      backward.input_gradient = wanted[operation->input];
      if (operation->kind == OperationKind::dense) backward.rows_end = graph_.tensors[operation->input].elements();
      graph_.backward.push_back(backward);
    }
  }

  static OperationKind backward_of(OperationKind forward) {
    switch (forward) {
      case OperationKind::convolution: return OperationKind::convolution_backward;
      case OperationKind::dense: return OperationKind::dense_backward;
      case OperationKind::max_pooling: return OperationKind::max_pooling_backward;
      case OperationKind::average_pooling: return OperationKind::average_pooling_backward;
      case OperationKind::dropout: return OperationKind::dropout_backward;
      case OperationKind::batch_normalization: return OperationKind::batch_normalization_backward;
      case OperationKind::activation: return OperationKind::activation_backward;
      case OperationKind::softmax: return OperationKind::softmax_backward;
      default: throw InternalError("no backward of operation " + std::string(name_of(forward)));
    }
  }

  std::optional<double> input_scale_;
  Graph graph_;
  std::vector<ActivationFunction> activations_;  ///< what each tensor's producer fused
  int current_ = 0;
};

}  // namespace

Graph lower(const Sequential& architecture, const Loss& loss, bool mixed_bfloat16, std::optional<double> input_scale) {
  return Lowering(architecture, loss, mixed_bfloat16, input_scale).run();
}

}  // namespace lockstep
