// See lower.hpp. One pass over the calls of layers: each appends an operation, modifies the one that computes its
// input, or reinterprets the shape of its input. One file, because the functions that layers call are one class's.
#include "graph/lower.hpp"

#include "graph/autodiff.hpp"
#include "graph/input_numbers.hpp"
#include "graph/mixed_precision.hpp"
#include "graph/output_options.hpp"
#include "layers/activation_functions.hpp"
#include "layers/layer_registry.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
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
  Lowering(const Architecture& architecture, const CompileOptions& options, Precision precision,
           std::optional<double> input_scale)
      : architecture_(architecture.flattened()), input_scale_(input_scale) {
    graph_.layers = architecture_.layers();
    for (OutputOptions& output : output_options(options, architecture)) {
      graph_.outputs.push_back({.name = std::move(output.output),
                                .loss = output.loss,
                                .loss_weight = output.loss_weight,
                                .metrics = std::move(output.metrics),
                                .weighted_metrics = std::move(output.weighted_metrics)});
    }
    hidden_logits_.resize(graph_.outputs.size());
    graph_.mixed_bfloat16 =
        precision == Precision::automatic ? layers_are_mixed(graph_.layers) : precision == Precision::mixed_bfloat16;
    graph_.is_chain = architecture_.is_chain() &&
                      std::ranges::none_of(graph_.layers, [](const LayerInfo& layer) { return is_penalized(layer); });
    graph_.inputs.resize(architecture_.inputs().size());
    find_uses();
  }

  Graph run() {
    check_integers(architecture_);
    add_parameters();
    outputs_.resize(architecture_.calls().size());
    for (std::size_t call = 0; call < architecture_.calls().size(); ++call) add_call(static_cast<int>(call));
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      const double scale = byte_scale_of(architecture_, i);
      const bool is_scalable = architecture_.input_type(i) == InputType::float32;
      graph_.inputs[i].byte_scale = is_scalable ? input_scale_.value_or(scale) : scale;
    }
    add_metrics_parameter();
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) add_loss(i);
    if (graph_.outputs.size() > 1) refuse_equal_names();
    if (graph_.mixed_bfloat16) choose_types(graph_);
    for (const Fork& fork : forks_) share_gradient(fork);
    add_backward(graph_, forks_);
    return std::move(graph_);
  }

  // The functions that LayerTraits<L>::lower calls. They act on one call of the layer `layer_`. "The last tensor" is
  // the call's input, and then the output of what they append.
  using Kind = OperationKind;

  /// Of this call; the calls of a shared layer may have different ones.
  [[nodiscard]] const Shape& output_shape() const { return architecture_.calls()[call_].output_shape; }

  /// Appends an operation from the last tensor to a new one of the call's output shape.
  Operation& append(OperationKind kind) {
    TensorSpec tensor;
    set_extents(tensor, output_shape());
    return append(kind, std::move(tensor));
  }

  /// The same for an operation that needs channels last.
  Operation& append_channels_last(OperationKind kind) {
    graph_.tensors[current_].requires_channels_last = true;
    Operation& operation = append(kind);
    graph_.tensors[current_].requires_channels_last = true;
    if (!info().parameters.empty()) use_parameters(operation, {0, num_parameters()});
    return operation;
  }

  /// The same for an operation that has the layer's parameters.
  void append_weighted(OperationKind kind) { use_parameters(append(kind), {0, num_parameters()}); }

  /// Appends a convolution to `filters` channels that has the layer's parameters; of several, those in the range.
  void append_convolution(const Windows& windows, std::int64_t filters, std::int64_t groups) {
    append_convolution(windows, filters, groups, {0, num_parameters()});
  }
  void append_convolution(const Windows& windows, std::int64_t filters, std::int64_t groups,
                          const BasicRange<int>& parameters) {
    Operation& operation = append_windows(OperationKind::convolution, over_last_tensor(windows), filters);
    operation.groups = groups;
    use_parameters(operation, parameters);
  }

  /// The same for a transposed convolution.
  void append_transposed_convolution(const Windows& windows, std::int64_t filters) {
    const TensorSpec& input = graph_.tensors[current_];
    const Windows slid = windows.transposed_over(input.height, input.width);
    TensorSpec output;
    output.height = slid.rows.input;
    output.width = slid.columns.input;
    output.channels = filters;
    Operation& operation = append(OperationKind::convolution, std::move(output));
    operation.windows = slid;
    operation.is_transposed = true;
    use_parameters(operation, {0, num_parameters()});
  }

  /// The same for a pooling with windows, and for one of whole images.
  void append_pooling(OperationKind kind, const Windows& windows) {
    append_windows(kind, over_last_tensor(windows), channels());
  }
  void append_global_pooling(OperationKind kind) {
    const TensorSpec& input = graph_.tensors[current_];
    append_windows(kind, Windows::whole(input.height, input.width), channels());
  }

  /// Of the last tensor.
  [[nodiscard]] std::int64_t channels() const { return graph_.tensors[current_].channels; }

  /// Appends an elementwise operation, whose tensor has the shape of the last one: that keeps the layout across a
  /// Flatten that was lowered to nothing.
  Operation& append_elementwise(OperationKind kind) {
    const TensorSpec& last = graph_.tensors[current_];
    TensorSpec tensor;
    tensor.height = last.height;
    tensor.width = last.width;
    tensor.channels = last.channels;
    return append(kind, std::move(tensor));
  }

  /// Appends a merge of all inputs of the call. `scaled`: the index of an input that the layer's constants scale first.
  void append_merge(MergeFunction function, std::optional<std::size_t> scaled = {}) {
    std::vector<Operand> operands = read_operands(scaled);
    Operation& operation = append(OperationKind::merge);
    operation.merge = function;
    operation.operands = std::move(operands);
  }

  /// Appends a concatenation of all inputs of the call along an axis.
  void append_concatenate(std::size_t axis) {
    std::vector<Operand> operands = read_operands();
    Operation& operation = append(OperationKind::concatenate);
    operation.operands = std::move(operands);
    for (std::size_t before = 0; before < axis; ++before) operation.concatenated_rows *= output_shape()[before];
    if (axis + 1 == output_shape().rank()) return;
    graph_.tensors[current_].requires_channels_last = true;
    for (const Operand& operand : operation.operands) graph_.tensors[operand.tensor].requires_channels_last = true;
  }

  /// Appends the dot product of the call's two inputs.
  void append_dot(DotAxes axes) {
    std::vector<Operand> operands = read_operands();
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Shape& shape = architecture_.calls()[architecture_.calls()[call_].inputs[i]].output_shape;
      const std::size_t axis = example_axis(i == 0 ? axes.first : axes.second, shape.rank());
      operands[i].summed.terms = shape[axis];
      for (std::size_t inner = axis + 1; inner < shape.rank(); ++inner) operands[i].summed.stride *= shape[inner];
      graph_.tensors[operands[i].tensor].requires_channels_last = true;
    }
    append(OperationKind::dot).operands = std::move(operands);
    graph_.tensors[current_].requires_channels_last = true;
  }

  /// Multiplies by the layer's constants, then adds others. They derive from its weights, if it has some.
  void append_affine() {
    Operation& operation = append_elementwise(OperationKind::affine);
    if (info().parameters.empty()) return;
    use_parameters(operation, {0, num_parameters()});
    operation.is_frozen = true;
  }

  /// Gathers rows of the layer's weights, and encodes indices or numbers. They are an input of the model, or encoded.
  void append_embedding() { append_of_data(OperationKind::embedding); }
  void append_encoding() { append_of_data(OperationKind::encode); }

  /// Fuses the function into the operation that computes the last tensor if both support it; otherwise appends an
  /// operation.
  void activate(ActivationFunction function) {
    if (function == ActivationFunction::linear) return;
    const int logits = current_;
    HiddenLogits* const hidden = logits_that_hides(function);
    const bool hides_logits = hidden != nullptr;
    if (!is_elementwise(function)) {  // softmax and log_softmax
      graph_.tensors[current_].requires_channels_last = true;
      Operation& operation = append(OperationKind::softmax);
      if (function == activations::log_softmax) operation.activation = function;
      graph_.tensors[current_].requires_channels_last = true;
      if (hides_logits) *hidden = {.logits = logits, .output = current_};
      return;
    }
    const bool from_output = derivative_of(function) == Derivative::from_output;
    const auto computes_last = [&](const Operation& operation) { return operation.output == current_; };
    const auto last = std::ranges::find_if(graph_.forward, computes_last);  // none for an alias
    const bool fuses = from_output && !hides_logits && last != graph_.forward.end() &&
                       traits_of(*last).fuses_activation && last->activation == ActivationFunction::linear;
    Operation& operation = fuses ? *last : append_elementwise(OperationKind::activation);
    operation.activation = function;
    if (hides_logits) *hidden = {.logits = logits, .output = current_};
    if (from_output) activations_[current_] = function;  // else activation_backward has what the derivative needs
  }

  /// Adds an alias of the last tensor with the layer's output shape. Requires channels last.
  void view() {
    const Shape& shape = output_shape();
    if (reads_input_alone()) {  // gather can write any shape
      set_extents(graph_.tensors[current_], shape);
      return;
    }
    TensorSpec& base = graph_.tensors[current_];
    base.requires_channels_last = true;
    TensorSpec alias;
    alias.name = info().name;
    set_extents(alias, shape);
    alias.requires_channels_last = true;
    alias.alias = base.alias >= 0 ? base.alias : current_;
    alias.gradient_alias = base.gradient_alias >= 0 ? base.gradient_alias : current_;
    graph_.tensors.push_back(alias);
    activations_.push_back(activations_[current_]);
    current_ = static_cast<int>(graph_.tensors.size()) - 1;
  }

  /// Whether the call's output goes, through elementwise layers alone, to a layer that accepts any order of elements
  /// (ElementOrder::absorbed).
  [[nodiscard]] bool is_order_absorbed_later() const {
    for (int call = call_; uses_[call] == 1 && consumers_[call] >= 0;) {
      call = consumers_[call];
      if (architecture_.calls()[call].inputs.size() > 1) return false;
      const int layer = architecture_.calls()[call].layer;
      if (num_calls_[layer] > 1) return false;  // the other calls may read another order
      const ElementOrder order = element_order_of(graph_.layers[layer].layer);
      if (order != ElementOrder::passed_on) return order == ElementOrder::absorbed;
    }
    return false;
  }

  /// y = scale x + offset: computed by gather if only this layer reads an input of the model, else by an operation.
  void rescale(double scale, double offset) {
    if (!reads_input_alone()) return append_affine();
    GraphInput& input = *std::ranges::find(graph_.inputs, current_, &GraphInput::tensor);
    input.scale *= scale;
    input.offset = input.offset * scale + offset;
  }

 private:
  [[nodiscard]] const LayerInfo& info() const { return graph_.layers[layer_]; }
  [[nodiscard]] int num_parameters() const { return static_cast<int>(info().parameters.size()); }

  /// `parameters`: of the layer's.
  void use_parameters(Operation& operation, const BasicRange<int>& parameters) const {
    operation.parameter = first_parameter_ + parameters.begin;
    operation.num_parameters = parameters.size();
    operation.is_frozen = !is_trainable(info().layer);
    if (operation.is_frozen) return;  // nothing adds up over the calls
    const auto same = [&](const Operation& any) { return any.parameter == operation.parameter; };
    operation.shared = {static_cast<int>(std::ranges::count_if(graph_.forward, same)) - 1, num_calls_[layer_]};
  }

  [[nodiscard]] Windows over_last_tensor(const Windows& windows) const {
    const TensorSpec& input = graph_.tensors[current_];
    return windows.over(input.height, input.width);
  }

  void append_of_data(OperationKind kind) {
    if (!reads_data()) {
      throw UsageError("layer '" + info().name + "' (" + info().class_name +
                       ") reads what another layer computes, but Lockstep takes its numbers from a model's input only, "
                       "or from a Discretization or a CategoryEncoding");
    }
    append_channels_last(kind);
  }

  Operation& append_windows(OperationKind kind, const Windows& windows, std::int64_t channels) {
    TensorSpec output;
    output.height = windows.rows.output();
    output.width = windows.columns.output();
    output.channels = channels;
    Operation& operation = append(kind, std::move(output));
    operation.windows = windows;
    return operation;
  }

  /// How often each layer is called, and each call's output read, and by which call last.
  void find_uses() {
    num_calls_.resize(graph_.layers.size(), 0);
    for (const LayerCall& call : architecture_.calls()) ++num_calls_[call.layer];
    uses_.resize(architecture_.calls().size(), 0);
    consumers_.resize(uses_.size(), -1);
    for (std::size_t call = 0; call < uses_.size(); ++call) {
      for (const int input : architecture_.calls()[call].inputs) {
        ++uses_[input];
        consumers_[input] = static_cast<int>(call);
      }
    }
    for (const int output : architecture_.outputs()) ++uses_[output];
    for (std::size_t call = 0; call < uses_.size(); ++call) {
      if (is_penalized(graph_.layers[architecture_.calls()[call].layer])) ++uses_[call];
    }
  }

  /// All parameters in the order of the layers, which is that of files.
  void add_parameters() {
    for (std::size_t l = 0; l < graph_.layers.size(); ++l) {
      const LayerInfo& layer = graph_.layers[l];
      first_parameters_.push_back(static_cast<int>(graph_.parameters.size()));
      for (const ParameterInfo& parameter : layer.parameters) {
        ParameterSpec spec{.name = layer.name + "/" + parameter.name, .info = parameter};
        if (!is_trainable(layer.layer) || parameter.is_constant) {
          spec.rule = UpdateRule::frozen;
        } else if (!parameter.trainable) {
          spec.rule = UpdateRule::moving_average;
          spec.momentum = static_cast<float>(std::pow(parameter.momentum, num_calls_[l]));  // one update by each call
        }
        graph_.parameters.push_back(std::move(spec));
      }
    }
  }

  void add_call(int call) {
    call_ = call;
    layer_ = architecture_.calls()[call].layer;
    first_parameter_ = first_parameters_[layer_];
    const std::vector<int>& inputs = architecture_.calls()[call].inputs;
    if (inputs.empty()) {
      add_input(call);
    } else {
      current_ = read(inputs.front());
      std::visit([this]<typename L>(const L& any) { LayerTraits<L>::lower(any, *this); }, info().layer);
    }
    outputs_[call] = {current_, graph_.forward.size()};
    if (is_penalized(info())) add_activity_penalty(call);
  }

  [[nodiscard]] static bool is_penalized(const LayerInfo& layer) {
    return !activity_regularizer_of(layer.layer).is_none();
  }

  void add_activity_penalty(int call) {
    current_ = read(call);
    append(OperationKind::activity_penalty, TensorSpec());
    penalties_.push_back({.tensor = current_});
  }

  void add_input(int call) {
    current_ = static_cast<int>(graph_.tensors.size());
    TensorSpec& tensor = graph_.tensors.emplace_back();
    tensor.name = info().name;
    set_extents(tensor, output_shape());
    activations_.push_back(ActivationFunction::linear);
    const auto input =
        static_cast<std::size_t>(std::ranges::find(architecture_.inputs(), call) - architecture_.inputs().begin());
    graph_.inputs[input].tensor = current_;
    graph_.forward.push_back(
        {.kind = OperationKind::gather, .layer = layer_, .output = current_, .model_input = input});
  }

  /// The tensor through which the next operation reads the output of a call: an alias if there are other readers.
  int read(int call) {
    const auto [tensor, position] = outputs_[call];
    if (uses_[call] == 1 || graph_.is_input(tensor)) return tensor;  // nothing needs an input's gradient
    TensorSpec use = graph_.tensors[tensor];
    use.alias = use.alias >= 0 ? use.alias : tensor;
    use.gradient_alias = -1;
    use.is_fork = true;
    graph_.tensors.push_back(std::move(use));
    activations_.push_back(ActivationFunction::linear);  // sum_gradients applies the derivative
    auto fork = std::ranges::find(forks_, tensor, &Fork::tensor);
    if (fork == forks_.end()) {
      forks_.push_back({tensor, activations_[tensor], {}, architecture_.calls()[call].layer, position});
      fork = forks_.end() - 1;
    }
    fork->uses.push_back(static_cast<int>(graph_.tensors.size()) - 1);
    return fork->uses.back();
  }

  /// The gradient of the first use becomes the sum, so the forked tensor's gradient has the same memory.
  void share_gradient(const Fork& fork) {
    const int owner = graph_.tensors[fork.tensor].gradient_alias;
    graph_.tensors[owner >= 0 ? owner : fork.tensor].gradient_alias = fork.uses.front();
  }

  /// Whether only this call, and views before it, read an input of the model.
  [[nodiscard]] bool reads_input_alone() const {
    if (!graph_.is_input(current_)) return false;
    int call = call_;
    while (!architecture_.calls()[call].inputs.empty()) {
      call = architecture_.calls()[call].inputs.front();
      if (uses_[call] != 1) return false;
    }
    return true;
  }

  /// Whether the current tensor is an input of the model, or the direct encoding of one.
  [[nodiscard]] bool reads_data() const {
    const int alias = graph_.tensors[current_].alias;
    const int tensor = alias >= 0 ? alias : current_;
    if (graph_.is_input(tensor)) return true;
    const auto producer = std::ranges::find(graph_.forward, tensor, &Operation::output);
    return producer != graph_.forward.end() && producer->kind == OperationKind::encode;
  }

  /// The tensors that the call reads.
  std::vector<Operand> read_operands(std::optional<std::size_t> scaled = {}) {
    const int first = current_;
    std::vector<Operand> operands{{.tensor = first, .activation = activations_[first]}};
    const std::vector<int>& inputs = architecture_.calls()[call_].inputs;
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      current_ = read(inputs[i]);
      if (scaled == i) append_affine();
      operands.push_back({.tensor = current_, .activation = activations_[current_]});
    }
    current_ = first;
    return operands;
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

  /// An activation of the output that turns the loss' logits into probabilities. As Keras on TensorFlow does, the loss
  /// is computed from its input, which has not been rounded to 0 or 1.
  struct HiddenLogits {
    int logits = -1;
    int output = -1;
  };

  /// Where to note the logits if the function, applied by this call, turns an output's into what its loss takes.
  HiddenLogits* logits_that_hides(ActivationFunction function) {
    for (std::size_t index = 0; index < hidden_logits_.size(); ++index) {
      const GraphOutput& output = graph_.outputs[index];
      if (logits_activation_of(output.loss) == function && is_output(architecture_.outputs()[index], output.loss))
        return &hidden_logits_[index];
    }
    return nullptr;
  }

  /// Whether the output is what this call returns, perhaps through layers that return their input itself. In mixed
  /// precision Keras may convert between them. Throws UsageError if it is so in inference only.
  [[nodiscard]] bool is_output(int output, const Loss& loss) const {
    const LayerInfo* changes_in_training = nullptr;
    for (int call = output; call != call_; call = architecture_.calls()[call].inputs.front()) {
      const LayerCall& its = architecture_.calls()[call];
      const LayerInfo& layer = architecture_.layers()[its.layer];
      const ReturnsInput returns = returns_input(layer.layer);
      if (returns == ReturnsInput::never || its.inputs.size() != 1 || graph_.mixed_bfloat16) return false;
      if (returns == ReturnsInput::in_inference) changes_in_training = &layer;
    }
    if (changes_in_training == nullptr) return true;
    throw UsageError(fmt::format(
        "layer '{0}' ({1}) is between {2} and the loss {3}, which Keras on TensorFlow computes from the outputs in "
        "training, but from the {2}'s input in evaluation; move the layer before the {2}, or give "
        "--clip-probabilities, which computes it from the outputs, as Keras on JAX and PyTorch, or train with "
        "lockstep.fit",
        changes_in_training->name, changes_in_training->class_name, keras_name(*logits_activation_of(loss)),
        keras_name(loss)));
  }

  /// Of what is logged. Keras numbers such names.
  void refuse_equal_names() const {
    std::set<std::string> names{"loss"};
    const auto add = [&names](const std::string& name) {
      if (!names.insert(name).second)
        throw UsageError("two values that are logged have the name " + name + "; give a metric or an output another");
    };
    for (const GraphOutput& output : graph_.outputs) {
      add(output.name + "_loss");
      visit_metrics({output.metrics, output.weighted_metrics}, [&](std::string_view name, const Metric& /*metric*/) {
        add(fmt::format("{}_{}", output.name, name));
      });
    }
  }

  void add_metrics_parameter() {
    std::size_t sums = first_metric_sum;
    for (GraphOutput& output : graph_.outputs) {
      output.first_sum = sums;
      sums += (graph_.outputs.size() > 1 ? 1 : 0) + num_sums({output.metrics, output.weighted_metrics});
    }
    constexpr std::size_t line = 16;  // floats of a cache line
    const std::size_t storage = (sums + line - 1) / line * line;
    ParameterSpec metrics{.name = "metrics",
                          .info = {"metrics", Shape{static_cast<std::int64_t>(storage)}, Initializer::zeros, false},
                          .storage = storage,
                          .rule = UpdateRule::assign};
    graph_.parameters.push_back(std::move(metrics));
  }

  void add_loss(std::size_t index) {
    const int call = architecture_.outputs()[index];
    current_ = read(call);
    graph_.tensors[current_].requires_channels_last = true;  // what predict returns
    GraphOutput& model_output = graph_.outputs[index];
    model_output.tensor = current_;
    const LayerInfo& last = graph_.layers[architecture_.calls()[call].layer];
    const Shape& output = architecture_.output_shape(index);
    if (needs_class_vector(model_output.loss) && output.rank() != 1) {
      throw UsageError("the loss " + std::string(keras_name(model_output.loss)) +
                       " takes one vector per example, but '" + last.name + "' gives " + output.to_string_with_batch() +
                       "; end the model with Flatten() and Dense(...)");
    }
    if (reduction_of(model_output.loss) != Reduction::sum_over_batch_size && output.rank() > 1) {
      throw UsageError(fmt::format(
          "the loss {} has the reduction {}, but '{}' gives {}; with outputs of several axes Lockstep trains with "
          "sum_over_batch_size only",
          keras_name(model_output.loss), keras_name(reduction_of(model_output.loss)), last.name,
          output.to_string_with_batch()));
    }
    check({model_output.metrics, model_output.weighted_metrics}, model_output.loss, output.rank());
    const HiddenLogits& hidden = hidden_logits_[index];
    const bool reads_logits = hidden.output == current_;
    const int differentiated = reads_logits ? hidden.logits : current_;
    if (reads_logits) {
      model_output.loss = from_logits(model_output.loss);
    } else if (hidden.output >= 0) {  // a fork of it
      throw UsageError(fmt::format(
          "the output of '{}' has the loss {}, which Keras on TensorFlow computes from the activation's input, and is "
          "read by another layer or penalized (activity_regularizer), which Lockstep cannot do together; give "
          "--clip-probabilities, which computes the loss from the output, or train with lockstep.fit",
          last.name, keras_name(model_output.loss)));
    }
    std::vector<Operand> operands{{.tensor = differentiated, .activation = activations_[differentiated]}};
    if (index == 0) operands.insert(operands.end(), penalties_.begin(), penalties_.end());
    graph_.forward.push_back({.kind = OperationKind::loss,
                              .layer = architecture_.calls()[call].layer,
                              .input = current_,
                              .parameter = graph_.metrics_parameter(),
                              .num_parameters = 1,
                              .operands = std::move(operands),
                              .model_output = index});
  }

  /// A call's output, and the number of operations when it was lowered.
  struct CallOutput {
    int tensor = -1;
    std::size_t position = 0;
  };

  Architecture architecture_;   ///< without nested models
  std::vector<int> num_calls_;  ///< by layer
  std::vector<int> uses_;       ///< by call: how often its output is read
  std::vector<int> consumers_;  ///< by call: the last call that reads it, or -1
  std::vector<CallOutput> outputs_;
  std::vector<int> first_parameters_;  ///< by layer
  std::vector<Fork> forks_;
  std::optional<double> input_scale_;
  int call_ = 0;             ///< the call being lowered
  int layer_ = 0;            ///< its layer
  int first_parameter_ = 0;  ///< of that layer
  Graph graph_;
  std::vector<Operand> penalties_;               ///< of the outputs of layers
  std::vector<HiddenLogits> hidden_logits_;      ///< by output
  std::vector<ActivationFunction> activations_;  ///< the activation that each tensor's producer fused
  int current_ = 0;                              ///< the last tensor
};

}  // namespace

Graph lower(const Architecture& architecture, const CompileOptions& options, Precision precision,
            std::optional<double> input_scale) {
  return Lowering(architecture, options, precision, input_scale).run();
}

Graph lower(const Architecture& architecture, const Loss& loss, Precision precision, std::optional<double> input_scale,
            std::vector<Metric> metrics, std::vector<Metric> weighted_metrics) {
  const CompileOptions options{
      .loss = loss, .metrics = std::move(metrics), .weighted_metrics = std::move(weighted_metrics)};
  return lower(architecture, options, precision, input_scale);
}

}  // namespace lockstep
