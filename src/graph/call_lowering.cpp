// See call_lowering.hpp.
#include "graph/call_lowering.hpp"

#include "layers/activation_functions.hpp"
#include "layers/layer_registry.hpp"
#include "losses/loss_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <utility>
#include <variant>

namespace lockstep {

namespace {

/// Maps a shape of any rank to height, width and channels. The last axis becomes channels.
void set_extents(TensorSpec& tensor, const Shape& shape) {
  const std::size_t rank = shape.rank();
  tensor.channels = rank > 0 ? shape[rank - 1] : 1;
  tensor.height = rank >= 3 ? shape.elements() / (shape[rank - 1] * shape[rank - 2]) : 1;
  tensor.width = rank >= 2 ? shape[rank - 2] : 1;
}

}  // namespace

CallLowering::CallLowering(const Architecture& architecture, const std::vector<int>& first_parameters, Graph& graph)
    : architecture_(architecture),
      first_parameters_(first_parameters),
      graph_(graph),
      uses_(architecture),
      hidden_logits_(architecture.outputs().size()) {}

void CallLowering::lower_next() {
  call_ = static_cast<int>(outputs_.size());
  if (call().inputs.empty()) {
    add_input();
  } else {
    current_ = read(call().inputs.front());
    std::visit([this]<typename L>(const L& any) { LayerTraits<L>::lower(any, *this); }, info().layer);
  }
  outputs_.push_back({current_, graph_.forward.size()});
  if (is_penalized(info())) add_penalty();
}

void CallLowering::add_input() {
  current_ = static_cast<int>(graph_.tensors.size());
  TensorSpec& tensor = graph_.tensors.emplace_back();
  tensor.name = info().name;
  set_extents(tensor, output_shape());
  activations_.push_back(ActivationFunction::linear);
  const auto input =
      static_cast<std::size_t>(std::ranges::find(architecture_.inputs(), call_) - architecture_.inputs().begin());
  graph_.inputs[input].tensor = current_;
  graph_.forward.push_back(
      {.kind = OperationKind::gather, .layer = call().layer, .output = current_, .model_input = input});
}

void CallLowering::add_penalty() {
  current_ = read(call_);
  append(OperationKind::activity_penalty, TensorSpec());
  penalties_.push_back({.tensor = current_});
}

const Shape& CallLowering::output_shape() const { return call().output_shape; }

std::int64_t CallLowering::channels() const { return graph_.tensors[current_].channels; }

Operation& CallLowering::append(OperationKind kind) {
  TensorSpec tensor;
  set_extents(tensor, output_shape());
  return append(kind, std::move(tensor));
}

Operation& CallLowering::append_channels_last(OperationKind kind) {
  graph_.tensors[current_].requires_channels_last = true;
  Operation& operation = append(kind);
  graph_.tensors[current_].requires_channels_last = true;
  if (!info().parameters.empty()) use_parameters(operation, {0, num_parameters()});
  return operation;
}

void CallLowering::append_weighted(OperationKind kind) { use_parameters(append(kind), {0, num_parameters()}); }

void CallLowering::append_convolution(const Windows& windows, std::int64_t filters, std::int64_t groups) {
  append_convolution(windows, filters, groups, {0, num_parameters()});
}

void CallLowering::append_convolution(const Windows& windows, std::int64_t filters, std::int64_t groups,
                                      const BasicRange<int>& parameters) {
  Operation& operation = append_windows(OperationKind::convolution, over_last_tensor(windows), filters);
  operation.groups = groups;
  use_parameters(operation, parameters);
}

void CallLowering::append_transposed_convolution(const Windows& windows, std::int64_t filters) {
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

void CallLowering::append_pooling(OperationKind kind, const Windows& windows) {
  append_windows(kind, over_last_tensor(windows), channels());
}

void CallLowering::append_global_pooling(OperationKind kind) {
  const TensorSpec& input = graph_.tensors[current_];
  append_windows(kind, Windows::whole(input.height, input.width), channels());
}

Operation& CallLowering::append_elementwise(OperationKind kind) {
  const TensorSpec& last = graph_.tensors[current_];
  TensorSpec tensor;
  tensor.height = last.height;
  tensor.width = last.width;
  tensor.channels = last.channels;
  return append(kind, std::move(tensor));
}

void CallLowering::append_merge(MergeFunction function, std::optional<std::size_t> scaled) {
  std::vector<Operand> operands = read_operands(scaled);
  Operation& operation = append(OperationKind::merge);
  operation.merge = function;
  operation.operands = std::move(operands);
}

void CallLowering::append_concatenate(std::size_t axis) {
  std::vector<Operand> operands = read_operands();
  Operation& operation = append(OperationKind::concatenate);
  operation.operands = std::move(operands);
  for (std::size_t before = 0; before < axis; ++before) operation.concatenated_rows *= output_shape()[before];
  if (axis + 1 == output_shape().rank()) return;
  graph_.tensors[current_].requires_channels_last = true;
  for (const Operand& operand : operation.operands) graph_.tensors[operand.tensor].requires_channels_last = true;
}

void CallLowering::append_dot(DotAxes axes) {
  std::vector<Operand> operands = read_operands();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = architecture_.calls()[call().inputs[i]].output_shape;
    const std::size_t axis = example_axis(i == 0 ? axes.first : axes.second, shape.rank());
    operands[i].summed.terms = shape[axis];
    for (std::size_t inner = axis + 1; inner < shape.rank(); ++inner) operands[i].summed.stride *= shape[inner];
    graph_.tensors[operands[i].tensor].requires_channels_last = true;
  }
  append(OperationKind::dot).operands = std::move(operands);
  graph_.tensors[current_].requires_channels_last = true;
}

void CallLowering::append_affine() {
  Operation& operation = append_elementwise(OperationKind::affine);
  if (info().parameters.empty()) return;
  use_parameters(operation, {0, num_parameters()});
  operation.is_frozen = true;
}

void CallLowering::append_embedding() { append_of_data(OperationKind::embedding); }

void CallLowering::append_encoding() { append_of_data(OperationKind::encode); }

void CallLowering::activate(ActivationFunction function) {
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

void CallLowering::view() {
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

bool CallLowering::is_order_absorbed_later() const {
  for (int call = call_; uses_.readers_of(call) == 1 && uses_.last_reader_of(call) >= 0;) {
    call = uses_.last_reader_of(call);
    if (architecture_.calls()[call].inputs.size() > 1) return false;
    const int layer = architecture_.calls()[call].layer;
    if (uses_.calls_of(layer) > 1) return false;  // the other calls may read another order
    const ElementOrder order = element_order_of(graph_.layers[layer].layer);
    if (order != ElementOrder::passed_on) return order == ElementOrder::absorbed;
  }
  return false;
}

void CallLowering::rescale(double scale, double offset) {
  if (!reads_input_alone()) return append_affine();
  GraphInput& input = *std::ranges::find(graph_.inputs, current_, &GraphInput::tensor);
  input.scale *= scale;
  input.offset = input.offset * scale + offset;
}

void CallLowering::use_parameters(Operation& operation, const BasicRange<int>& parameters) const {
  operation.parameter = first_parameters_[call().layer] + parameters.begin;
  operation.num_parameters = parameters.size();
  operation.is_frozen = !is_trainable(info().layer);
  if (operation.is_frozen) return;  // nothing adds up over the calls
  const auto same = [&](const Operation& any) { return any.parameter == operation.parameter; };
  operation.shared = {static_cast<int>(std::ranges::count_if(graph_.forward, same)) - 1, uses_.calls_of(call().layer)};
}

Windows CallLowering::over_last_tensor(const Windows& windows) const {
  const TensorSpec& input = graph_.tensors[current_];
  return windows.over(input.height, input.width);
}

void CallLowering::append_of_data(OperationKind kind) {
  if (!reads_data()) {
    throw UsageError("layer '" + info().name + "' (" + info().class_name +
                     ") reads what another layer computes, but Lockstep takes its numbers from a model's input only, "
                     "or from a Discretization or a CategoryEncoding");
  }
  append_channels_last(kind);
}

Operation& CallLowering::append_windows(OperationKind kind, const Windows& windows, std::int64_t channels) {
  TensorSpec output;
  output.height = windows.rows.output();
  output.width = windows.columns.output();
  output.channels = channels;
  Operation& operation = append(kind, std::move(output));
  operation.windows = windows;
  return operation;
}

Operation& CallLowering::append(OperationKind kind, TensorSpec output) {
  output.name = info().name;
  graph_.tensors.push_back(std::move(output));
  activations_.push_back(ActivationFunction::linear);
  const int input = std::exchange(current_, static_cast<int>(graph_.tensors.size()) - 1);
  graph_.forward.push_back({.kind = kind,
                            .layer = call().layer,
                            .input = input,
                            .output = current_,
                            .input_activation = activations_[input]});
  return graph_.forward.back();
}

int CallLowering::read(int call) {
  const auto [tensor, position] = outputs_[call];
  if (uses_.readers_of(call) == 1 || graph_.is_input(tensor)) return tensor;  // nothing needs an input's gradient
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

bool CallLowering::reads_input_alone() const {
  if (!graph_.is_input(current_)) return false;
  int call = call_;
  while (!architecture_.calls()[call].inputs.empty()) {
    call = architecture_.calls()[call].inputs.front();
    if (uses_.readers_of(call) != 1) return false;
  }
  return true;
}

bool CallLowering::reads_data() const {
  const int alias = graph_.tensors[current_].alias;
  const int tensor = alias >= 0 ? alias : current_;
  if (graph_.is_input(tensor)) return true;
  const auto producer = std::ranges::find(graph_.forward, tensor, &Operation::output);
  return producer != graph_.forward.end() && producer->kind == OperationKind::encode;
}

std::vector<Operand> CallLowering::read_operands(std::optional<std::size_t> scaled) {
  const int first = current_;
  std::vector<Operand> operands{{.tensor = first, .activation = activations_[first]}};
  const std::vector<int>& inputs = call().inputs;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    current_ = read(inputs[i]);
    if (scaled == i) append_affine();
    operands.push_back({.tensor = current_, .activation = activations_[current_]});
  }
  current_ = first;
  return operands;
}

HiddenLogits* CallLowering::logits_that_hides(ActivationFunction function) {
  for (std::size_t index = 0; index < hidden_logits_.size(); ++index) {
    const GraphOutput& output = graph_.outputs[index];
    if (logits_activation_of(output.loss) == function && is_output(architecture_.outputs()[index], output.loss))
      return &hidden_logits_[index];
  }
  return nullptr;
}

bool CallLowering::is_output(int output, const Loss& loss) const {
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

}  // namespace lockstep
