// See output_metrics.hpp.
#include "session/output_metrics.hpp"

#include "graph/graph.hpp"
#include "metrics/metric_registry.hpp"

#include <algorithm>

namespace lockstep {

OutputMetrics::OutputMetrics(std::span<const OutputOptions> outputs) : outputs_(outputs) {
  name_values({}, [this](std::string_view name, double /*value*/) { names_.emplace_back(name); });
}

std::size_t OutputMetrics::num_sums() const noexcept {
  std::size_t sums = outputs_.size() > 1 ? outputs_.size() : 0;
  for (const OutputOptions& output : outputs_) sums += lockstep::num_sums({output.metrics, output.weighted_metrics});
  return sums;
}

void OutputMetrics::read(std::span<const float> written, MetricSums& sums) const {
  sums.loss_sum = written[metric_loss];
  sums.num_examples = written[metric_count];
  const auto own = written.subspan(first_metric_sum, num_sums());
  sums.sums.assign(own.begin(), own.end());
}

void OutputMetrics::visit_values(const MetricSums& sums, const Visitor& visitor) const {
  std::size_t index = 0;
  name_values(sums, [&](std::string_view /*name*/, double value) { visitor(names_[index++], value); });
}

void OutputMetrics::name_values(const MetricSums& sums, const Visitor& visitor) const {
  visitor("loss", sums.loss());
  std::span<const double> left = sums.sums;  // none if there were no examples
  const auto take = [&left](std::size_t count) {
    const std::span<const double> taken = left.first(std::min(count, left.size()));
    left = left.subspan(taken.size());
    return taken;
  };
  for (const OutputOptions& output : outputs_) {
    const MetricLists lists{output.metrics, output.weighted_metrics};
    if (outputs_.size() == 1) return visit_metric_values(lists, left, sums.num_examples, visitor);
    const std::string prefix = output.output + "_";
    const std::span<const double> loss = take(1);
    visitor(prefix + "loss", loss.empty() || sums.num_examples == 0 ? 0.0 : loss[0] / sums.num_examples);
    visit_metric_values(lists, take(lockstep::num_sums(lists)), sums.num_examples,
                        [&](std::string_view name, double value) { visitor(prefix + std::string(name), value); });
  }
}

}  // namespace lockstep
