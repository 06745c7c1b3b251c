// What can be asked of a metric without running it.
#include <lockstep/metrics/metrics.hpp>

#include "core/fields.hpp"
#include "core/variant_types.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace lockstep {

Metric::Metric(const Metric&) = default;
Metric::Metric(Metric&&) noexcept = default;
Metric& Metric::operator=(const Metric&) = default;
Metric& Metric::operator=(Metric&&) noexcept = default;
Metric::~Metric() = default;

const Metric& default_accuracy() noexcept {
  static const Metric metric = metrics::Accuracy();
  return metric;
}

std::string_view keras_name(const Metric& metric) noexcept {
  return std::visit(
      []<typename T>(const T& any) { return any.name.empty() ? MetricTraits<T>::name : std::string_view(any.name); },
      metric);
}

std::size_t num_sums(const Metric& metric) noexcept {
  return std::visit([]<typename T>(const T& options) { return MetricTraits<T>::num_sums(options); }, metric);
}

std::size_t num_sums(const MetricLists& lists) noexcept {
  std::size_t sums = lists.weighted.size();
  for (const std::span<const Metric> list : {lists.metrics, lists.weighted}) {
    for (const Metric& metric : list) sums += num_sums(metric);
  }
  return sums;
}

void complete(std::vector<Metric>& metrics, std::int64_t outputs) {
  for (Metric& metric : metrics) {
    std::visit([outputs]<typename T>(T& options) { MetricTraits<T>::complete(options, outputs); }, metric);
  }
}

bool is_per_vector(const Metric& metric) noexcept {
  return std::visit([]<typename T>(const T& /*metric*/) { return MetricTraits<T>::is_per_vector; }, metric);
}

bool is_upward(const Metric& metric) noexcept {
  return std::visit([]<typename T>(const T& /*metric*/) { return MetricTraits<T>::is_upward; }, metric);
}

std::optional<bool> is_upward_metric(std::string_view name) noexcept {
  const std::size_t end = name.find_last_not_of("0123456789");  // Keras numbers equal names: "precision_1"
  if (end != std::string_view::npos && end + 1 < name.size() && name[end] == '_') name = name.substr(0, end);
  std::optional<bool> is_upward;
  for_each_alternative<Metric>([&]<typename T>(std::type_identity<T>) {
    if (is_name_of<T>(name)) is_upward = MetricTraits<T>::is_upward;
  });
  return is_upward;
}

void check(const MetricLists& lists, const Loss& loss, std::size_t output_rank) {
  const MetricTargets targets = takes_classes(loss) ? MetricTargets::classes : MetricTargets::dense;
  std::set<std::string> names;
  std::size_t index = 0;
  visit_metrics(lists, [&](std::string_view given, const Metric& each) {
    const std::string name(given);
    const bool is_weighted = index++ >= lists.metrics.size();
    if (!names.insert(name).second)
      throw UsageError("the metric " + name + " is given twice; give it once, or give one another name");
    if (name == "loss") throw UsageError("a metric has the name 'loss', like the loss; give it another name");
    std::visit(
        [&]<typename T>(const T& metric) {
          using Traits = MetricTraits<T>;
          const NumberRangeCheck range_check("the metric " + name + "'s ");
          Traits::fields(range_check, metric);
          if (Traits::targets != MetricTargets::any && Traits::targets != targets) {
            const bool wants_classes = Traits::targets == MetricTargets::classes;
            throw UsageError("the metric " + name + " needs targets that are " +
                             (wants_classes ? "class indices" : "of the output's shape") + ", but those of the loss " +
                             std::string(keras_name(loss)) + " are " +
                             (wants_classes ? "of the output's shape" : "class indices") +
                             "; choose another metric or another loss");
          }
          constexpr bool counts_whole_numbers = requires { Traits::counts_whole_numbers; };
          if (counts_whole_numbers && is_weighted) {
            throw UsageError("the metric " + name +
                             " cannot be a weighted metric: Keras would cut its weights to whole numbers; give it in "
                             "metrics");
          }
          constexpr bool needs_one_vector = requires { Traits::needs_one_vector; };
          if (needs_one_vector && output_rank != 1) {
            throw UsageError("the metric " + name +
                             " needs one vector of classes per example; end the model with Flatten() and "
                             "Dense(classes), or choose another metric");
          }
        },
        each);
  });
}

}  // namespace lockstep
