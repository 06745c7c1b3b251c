// See plan.hpp. Queries and text of a plan; make_plan.cpp builds it.
#include "plan/plan.hpp"

#include "core/digest.hpp"
#include "core/overloaded.hpp"

#include <fmt/format.h>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

std::string extents(const TensorSpec& tensor) {
  return fmt::format("{}x{}x{} {}{}", tensor.height, tensor.width, tensor.channels,
                     tensor.height * tensor.width == 1 ? "" : fmt::format("{} ", to_string(tensor.layout)),
                     to_string(tensor.type));
}

std::string line_of(const Operation& operation, const Graph& graph) {
  std::string line(to_string(operation.kind));
  line += " " + graph.layers[operation.layer].name;
  if (operation.input >= 0) line += fmt::format(" t{}", operation.input);
  for (const Operand& operand : operation.operands) {
    if (operand.tensor != operation.input) line += fmt::format(" t{}", operand.tensor);
  }
  if (operation.output >= 0) line += fmt::format(" -> t{}", operation.output);
  if (operation.kind == OperationKind::dense_backward) {
    line += fmt::format(" input features {}..{}", operation.input_features.begin, operation.input_features.end);
  }
  if (operation.activation != ActivationFunction::linear) line += " " + std::string(keras_name(operation.activation));
  if (operation.derives_activation) line += " and its derivative";
  if (operation.input_gradient) {
    line += " (input gradient";
    if (operation.input_activation != ActivationFunction::linear) {
      line += " through " + std::string(keras_name(operation.input_activation));
    }
    line += ")";
  }
  if (operation.microbatch.count > 1)
    line += fmt::format(" microbatch {}/{}", operation.microbatch.index, operation.microbatch.count);
  if (operation.is_batch_split) line += " batch-split";
  if (operation.all_to_all) line += fmt::format(" all-to-all {}", *operation.all_to_all);
  if (operation.partial_sum) line += " all-reduced in " + graph.parameters[*operation.partial_sum].name;
  return line;
}

std::string line_of(const PlanStep& step, const Plan& plan) {
  const auto line = [](const char* name, std::size_t index) { return fmt::format("{}{}", name, index); };
  return std::visit(
      Overloaded{
          [&](const Compute& compute) { return line_of(plan.compute[compute.operation], plan.graph); },
          [&](const MarkReady& ready) { return line("mark_ready bucket ", ready.bucket); },
          [&](const Update& update) { return line("update bucket ", update.bucket); },
          [&](const WaitUpdated& wait) { return line("wait_updated bucket ", wait.bucket); },
          [&](const UpdateLocal& update) { return line("update_local range ", update.range); },
          [&](const StartAllToAll& start) { return line("start_all_to_all all-to-all ", start.all_to_all); },
          [&](const FinishAllToAll& finish) { return line("finish_all_to_all all-to-all ", finish.all_to_all); }},
      step);
}

/// "convolution conv2d forward direct_nhwc, weights direct_nhwc, data direct_nhwc on nhwc -> nhwc".
std::string line_of_choice(const Operation& operation, const Graph& graph) {
  const ConvolutionChoice& choice = operation.convolution;
  std::string line = fmt::format("{} forward {}, weights {}", graph.layers[operation.layer].name,
                                 to_string(choice.forward), to_string(choice.weights));
  if (choice.data != ConvolutionAlgorithm::unspecified) line += fmt::format(", data {}", to_string(choice.data));
  return line + fmt::format(" on {} -> {}", to_string(choice.input), to_string(choice.output));
}

/// `common`: only what is equal on all ranks of a tensor-parallel model.
std::string layout_of(const Plan& plan, bool common = false) {
  const Graph& graph = plan.graph;
  std::string text;
  for (const GraphInput& input : graph.inputs) {
    text += fmt::format("input bytes * {:.17g}, * {:.17g} + {:.17g}\n", input.byte_scale, input.scale, input.offset);
  }
  text += plan.sharding;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (common && graph.tensors[t].whole_channels > 0) continue;
    text += fmt::format("tensor t{} {} {}\n", t, graph.tensors[t].name, extents(graph.tensors[t]));
  }
  for (const Operation& operation : graph.forward) {
    if (operation.kind != OperationKind::convolution) continue;
    const bool is_sharded =
        graph.tensors[operation.input].whole_channels > 0 || graph.tensors[operation.output].whole_channels > 0;
    if (!common || !is_sharded) text += "convolution " + line_of_choice(operation, graph) + "\n";
  }
  for (const ParameterSpec& parameter : graph.parameters) {
    if (common && parameter.is_local) continue;
    text += fmt::format("parameter {} {} at {}, {} elements{}\n", parameter.name, parameter.info.shape.to_string(),
                        parameter.offset, parameter.storage, parameter.is_local ? ", local" : "");
    if (parameter.rule == UpdateRule::frozen) text.insert(text.size() - 1, ", frozen");
  }
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    text += fmt::format("bucket {} [{}, {})\n", b, plan.buckets[b].begin, plan.buckets[b].end);
  }
  return text;
}

}  // namespace

const Operation* Plan::operation_of(const PlanStep& step) const noexcept {
  const auto* computed = std::get_if<Compute>(&step);
  return computed != nullptr ? &compute[computed->operation] : nullptr;
}

std::string Plan::to_string() const {
  std::string text = layout_of(*this);
  for (const PlanStep& step : training) text += line_of(step, *this) + "\n";
  return text;
}

std::vector<std::string> Plan::kernel_choices() const {
  std::vector<std::string> choices;
  for (const Operation& operation : graph.forward) {
    if (operation.kind == OperationKind::convolution) choices.push_back(line_of_choice(operation, graph));
  }
  return choices;
}

std::string Plan::digest() const { return to_hex(fnv1a(layout_of(*this, !sharding.empty()))); }

std::vector<std::size_t> Plan::places_of_step(bool reduces_metrics) const {
  const auto is_for_metrics = [this](const PlanStep& step) {
    return is_step_of<MarkReady>(step, metrics_bucket) || is_step_of<Update>(step, metrics_bucket) ||
           is_step_of<WaitUpdated>(step, metrics_bucket);
  };
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < training.size(); ++i) {
    if (reduces_metrics || !is_for_metrics(training[i])) places.push_back(i);
  }
  return places;
}

std::vector<Range> Plan::non_gradient_ranges() const {
  std::vector<Range> ranges;
  for (const ParameterSpec& parameter : graph.parameters) {
    if (parameter.is_local || parameter.rule == UpdateRule::optimizer) continue;
    ranges.push_back({parameter.offset, parameter.offset + arena_elements(parameter)});
  }
  return ranges;
}

std::vector<Operation> Plan::reduced_embeddings() const {
  std::vector<Operation> embeddings;
  for (const Operation& operation : graph.forward) {
    if (operation.kind != OperationKind::embedding || operation.shared.index > 0) continue;
    const ParameterSpec& parameter = graph.parameters[operation.parameter];
    if (!parameter.is_local && parameter.rule == UpdateRule::optimizer) embeddings.push_back(operation);
  }
  return embeddings;
}

std::vector<Range> Plan::embedding_ranges() const {
  std::vector<Range> ranges;
  for (const Operation& embedding : reduced_embeddings()) {
    const ParameterSpec& parameter = graph.parameters[embedding.parameter];
    ranges.push_back({parameter.offset, parameter.offset + parameter.storage});
  }
  return ranges;
}

std::vector<Range> Plan::constrained_ranges() const {
  std::vector<Range> ranges;
  for (const ParameterSpec& parameter : graph.parameters) {
    if (!parameter.is_constrained() || parameter.is_local) continue;
    ranges.push_back({parameter.offset, parameter.offset + parameter.storage});
  }
  return ranges;
}

std::size_t offset_in_copy(const Plan& plan, std::size_t array) {
  return array == 0 ? 0 : plan.weight_elements + (array - 1) * plan.elements;
}

std::size_t arena_elements(const ParameterSpec& parameter) {
  return (parameter.storage + cache_line_elements - 1) / cache_line_elements * cache_line_elements;
}

}  // namespace lockstep
