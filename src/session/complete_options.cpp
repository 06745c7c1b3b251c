// See complete_options.hpp.
#include "session/complete_options.hpp"

#include "losses/loss_registry.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

/// Calls visit(clips_probabilities) for each loss and metric that has the field. `options` are OutputOptions, or
/// CompileOptions for a single output.
void visit_clipping(auto& options, const auto& visit) {
  const auto visit_field = [&visit](auto& any) {
    if constexpr (requires { any.clips_probabilities; }) visit(any.clips_probabilities);
  };
  std::visit(visit_field, options.loss);
  for (auto* metrics : {&options.metrics, &options.weighted_metrics}) {
    for (auto& metric : *metrics) std::visit(visit_field, metric);
  }
}

}  // namespace

void complete(CompileOptions& options, const Architecture& architecture) {
  check(options.optimizer);
  std::vector<OutputOptions> outputs = output_options(options, architecture);
  for (const OutputOptions& output : outputs) check(output.loss);
  if (outputs.size() > 1) {
    options.outputs = std::move(outputs);
    return;
  }
  if (outputs.front().loss_weight != 1) {
    throw UsageError(fmt::format("the only output has the loss weight {}; multiply the learning rate instead",
                                 outputs.front().loss_weight));
  }
  options.loss = outputs.front().loss;
  options.metrics = std::move(outputs.front().metrics);
  options.weighted_metrics = std::move(outputs.front().weighted_metrics);
  options.outputs.clear();
}

void clip_probabilities(CompileOptions& options) {
  const auto clip = [](bool& clips) { clips = true; };
  visit_clipping(options, clip);
  for (OutputOptions& output : options.outputs) visit_clipping(output, clip);
}

std::string describe_clipping(std::span<const OutputOptions> outputs) {
  std::string clipping;
  for (const OutputOptions& output : outputs) {
    visit_clipping(output, [&clipping](bool clips) { clipping += clips ? '1' : '0'; });
  }
  return clipping.find('1') == std::string::npos ? "" : clipping;
}

}  // namespace lockstep
