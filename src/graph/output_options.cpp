// See output_options.hpp.
#include "graph/output_options.hpp"

#include "core/join_words.hpp"
#include "layers/layer_registry.hpp"
#include "metrics/metric_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

std::vector<std::string> names_of_outputs(const Architecture& model) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < model.outputs().size(); ++i) names.push_back(model.output_name(i));
  return names;
}

/// `options.outputs` in the model's order.
std::vector<OutputOptions> in_order(const CompileOptions& options, const std::vector<std::string>& names) {
  std::vector<OutputOptions> given = options.outputs;
  const auto is_unnamed = [](const OutputOptions& output) { return output.output.empty(); };
  if (std::ranges::all_of(given, is_unnamed) && given.size() == names.size()) {
    for (std::size_t i = 0; i < names.size(); ++i) given[i].output = names[i];
    return given;
  }
  std::vector<OutputOptions> ordered;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(given, name, &OutputOptions::output);
    if (found == given.end()) {
      throw UsageError(
          fmt::format("the output '{}' has no loss; give one for each output: {}", name, join_words(names)));
    }
    ordered.push_back(*found);
    given.erase(found);
  }
  if (given.empty()) return ordered;
  throw UsageError(fmt::format("the compile options are for the output '{}' too, but the model's outputs are {}",
                               given.front().output, join_words(names)));
}

}  // namespace

std::vector<OutputOptions> output_options(const CompileOptions& options, const Architecture& model) {
  const std::vector<std::string> names = names_of_outputs(model);
  std::vector<OutputOptions> outputs;
  if (!options.outputs.empty()) {
    outputs = in_order(options, names);
  } else if (names.size() == 1) {
    outputs = {{.output = names.front(),
                .loss = options.loss,
                .metrics = options.metrics,
                .weighted_metrics = options.weighted_metrics}};
  } else {
    for (const std::string& name : names) outputs.push_back({.output = name, .loss = options.loss});
  }
  const bool has_own = names.size() > 1 || !options.outputs.empty();
  if (has_own && (!options.metrics.empty() || !options.weighted_metrics.empty())) {
    throw UsageError(
        fmt::format("the compile options have metrics beside those of the outputs ({}); give each to its output",
                    join_words(names)));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!std::isfinite(outputs[i].loss_weight)) {
      throw UsageError(fmt::format("the loss weight of the output '{}' is {}; it must be a finite number", names[i],
                                   outputs[i].loss_weight));
    }
    for (std::vector<Metric>* list : {&outputs[i].metrics, &outputs[i].weighted_metrics})
      complete(*list, model.output_shape(i).elements());
  }
  return outputs;
}

ActivationFunction last_activation(const Architecture& model, std::size_t output) {
  const Architecture flat = model.flattened();
  int call = flat.outputs().at(output);
  while (true) {
    const LayerCall& its = flat.calls()[call];
    const Layer& layer = flat.layers()[its.layer].layer;
    const std::optional<ActivationFunction> activation = activation_of(layer);
    const bool passes = !activation || returns_input(layer) != ReturnsInput::never;
    if (!passes || its.inputs.empty()) return activation.value_or(linear);
    call = its.inputs.front();
  }
}

}  // namespace lockstep
