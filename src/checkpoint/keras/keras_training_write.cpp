// Writes optimizer, loss and metrics as Keras' training_config, with keys that every version from tf_keras 2 to Keras
// 3.15 accepts.
#include "checkpoint/keras/field_writer.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/ordered_json.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <nlohmann/json.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

json to_json(const Optimizer& optimizer) {
  json config{{"name", keras_instance_name(optimizer)}};
  const FieldWriter write(config);
  std::visit([&write](const auto& options) { visit_fields(write, options); }, optimizer);
  return {{"class_name", keras_name(optimizer)}, {"config", std::move(config)}};
}

json to_json(const Loss& loss) {
  json config{{"name", keras_name(loss)}, {"reduction", keras_name(reduction_of(loss))}};
  const FieldWriter write(config);
  return std::visit(
      [&]<typename T>(const T& options) -> json {
        LossTraits<T>::fields(write, options);
        return {{"class_name", LossTraits<T>::class_name}, {"config", config}};
      },
      loss);
}

json to_class(const Metric& metric) {
  return std::visit(
      [&metric]<typename T>(const T& options) -> json {
        constexpr bool counts_whole_numbers = requires { MetricTraits<T>::counts_whole_numbers; };
        json config{{"name", keras_name(metric)}, {"dtype", counts_whole_numbers ? "int32" : "float32"}};
        const FieldWriter write(config);
        MetricTraits<T>::fields(write, options);
        return {{"module", "keras.metrics"},
                {"class_name", MetricTraits<T>::class_name},
                {"config", std::move(config)},
                {"registered_name", nullptr}};
      },
      metric);
}

/// A name stands for the metric with Keras' defaults, which Keras then logs under this name.
json to_json(const Metric& metric) {
  const bool has_name = std::visit(
      [&metric]<typename T>(const T& options) {
        T automatic = options;
        automatic.name.clear();
        constexpr bool has_keras_name = !requires { MetricTraits<T>::is_class_in_files; };
        return has_keras_name && automatic == T() && is_name_of<T>(keras_name(metric));
      },
      metric);
  return has_name ? json(keras_name(metric)) : to_class(metric);
}

/// The class by which Keras replaces "accuracy".
Metric class_of_accuracy(const Loss& loss, std::int64_t outputs) {
  if (outputs == 1) return metrics::BinaryAccuracy();
  if (takes_classes(loss)) return metrics::SparseCategoricalAccuracy();
  return metrics::CategoricalAccuracy();
}

/// Of several outputs, losses, weights and metrics are lists. to_json_of_metric(metric, loss, output) writes a metric.
template <typename ToJson>
std::string training_config(const CompileOptions& options, const ToJson& to_json_of_metric) {
  const auto to_list = [&](const std::vector<Metric>& metrics, const Loss& of_loss, std::size_t output) {
    json list = json::array();
    for (const Metric& metric : metrics) list.push_back(to_json_of_metric(metric, of_loss, output));
    return list;
  };
  json loss;
  json metrics = json::array();
  json weighted;
  json loss_weights;
  if (options.outputs.empty()) {
    loss = to_json(options.loss);
    metrics = to_list(options.metrics, options.loss, 0);
    if (!options.weighted_metrics.empty()) weighted = to_list(options.weighted_metrics, options.loss, 0);
  }
  const auto is_weighted = [](const OutputOptions& output) { return output.loss_weight != 1; };
  const bool has_loss_weights = std::ranges::any_of(options.outputs, is_weighted);
  const auto has_weighted = [](const OutputOptions& output) { return !output.weighted_metrics.empty(); };
  const bool has_weighted_metrics = std::ranges::any_of(options.outputs, has_weighted);
  for (std::size_t i = 0; i < options.outputs.size(); ++i) {
    const OutputOptions& output = options.outputs[i];
    loss.push_back(to_json(output.loss));
    metrics.push_back(to_list(output.metrics, output.loss, i));
    if (has_weighted_metrics) weighted.push_back(to_list(output.weighted_metrics, output.loss, i));
    if (has_loss_weights) loss_weights.push_back(output.loss_weight);
  }
  const json document{{"loss", loss},
                      {"metrics", metrics},
                      {"weighted_metrics", weighted},
                      {"loss_weights", loss_weights},
                      {"optimizer_config", to_json(options.optimizer)}};
  return dump_json(document);
}

}  // namespace

std::string training_config_to_json(const CompileOptions& options) {
  return training_config(
      options, [](const Metric& metric, const Loss& /*loss*/, std::size_t /*output*/) { return to_json(metric); });
}

std::string training_config_to_json_of_classes(const CompileOptions& options, const DescribedOutputs& outputs) {
  return training_config(options, [&](const Metric& metric, const Loss& loss, std::size_t output) {
    if (!std::holds_alternative<metrics::Accuracy>(metric)) return to_class(metric);
    Metric accuracy = class_of_accuracy(loss, outputs.all[output].last_axis.value_or(0));
    std::visit([&](auto& made) { made.name = keras_name(metric); }, accuracy);
    return to_class(accuracy);
  });
}

}  // namespace lockstep
