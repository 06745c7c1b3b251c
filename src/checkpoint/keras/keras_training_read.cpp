// Reads optimizer, loss and metrics from the training_config of Keras 2 (tf_keras) and Keras 3.
#include "checkpoint/keras/field_reader.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "core/join_words.hpp"
#include "core/variant_types.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"
#include "optimizers/optimizer_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

Optimizer read_class(const ClassConfig& described, ConfigReader& config, const std::string& where) {
  std::optional<Optimizer> optimizer;
  std::vector<std::string_view> known;
  for_each_alternative<Optimizer>([&]<typename Options>(std::type_identity<Options>) {
    known.push_back(OptimizerTraits<Options>::class_name);
    if (described.class_name != known.back()) return;
    Options options;
    FieldReader reader(config, where);
    visit_fields(reader, options);
    optimizer = options;
  });
  if (!optimizer) config.fail("is not one of " + join_words(known) + compile_remedy);
  return *optimizer;
}

Optimizer read_optimizer(const json& value, const std::string& source) {
  ClassConfig described(value, source + ": the optimizer");
  if (described.class_name.starts_with("Custom>"))
    described.class_name.erase(0, 7);  // tf_keras' prefix for its optimizers
  const std::string where = source + ": the optimizer " + described.class_name;
  ConfigReader config(*described.config, where);
  Optimizer optimizer = read_class(described, config, where);
  // These do not change the result.
  config.ignore({"name", "jit_compile", "is_legacy_optimizer"});
  config.expect("decay", 0.0);
  config.reject_unread_keys();
  try {
    check(optimizer);
  } catch (const UsageError& error) {
    throw DataError(source + ": " + error.what());
  }
  return optimizer;
}

/// Keras 2 calls the default "auto", Keras 3 also "mean". Without a reduction Keras cannot train.
Reduction read_reduction(ConfigReader& config, bool is_given) {
  const std::string name = config.text("reduction", is_given ? "none" : "auto");
  if (name == "auto" || name == "mean") return Reduction::sum_over_batch_size;
  for (const Reduction known : {Reduction::sum_over_batch_size, Reduction::sum, Reduction::mean_with_sample_weight}) {
    if (name == keras_name(known)) return known;
  }
  config.fail("has the reduction " + name +
              ", but Lockstep trains with sum_over_batch_size, sum or mean_with_sample_weight; compile the model with "
              "one of them");
}

Loss read_loss(const json& value, const std::string& source) {
  const ClassConfig described(value, source + ": the loss");
  std::string name = described.class_name;
  if (name == "function" && described.config->is_string()) name = described.config->get<std::string>();
  static const json nothing = json::object();
  const bool bare = !described.config->is_object();
  ConfigReader config(bare ? nothing : *described.config, source + ": the loss " + name);
  config.ignore({"name", "fn"});
  config.expect("dtype", "float32");
  const Reduction reduction = read_reduction(config, !bare && described.config->contains("reduction"));

  std::optional<Loss> loss;
  std::vector<std::string_view> known;
  for_each_alternative<Loss>([&]<typename T>(std::type_identity<T>) {
    using Traits = LossTraits<T>;
    known.push_back(Traits::class_name);
    const bool is_alias = std::ranges::find(Traits::aliases, name) != Traits::aliases.end();
    if (name != Traits::class_name && name != Traits::function_name && !is_alias) return;
    T options;
    FieldReader reader(config, name);
    Traits::fields(reader, options);
    options.reduction = reduction;
    loss = options;
  });
  if (!loss) config.fail("is not one of " + join_words(known) + compile_remedy);
  config.reject_unread_keys();
  return *loss;
}

Metric read_metric(const json& value, const std::string& source) {
  const ClassConfig described(value, source + ": a metric");
  static const json nothing = json::object();
  const bool bare = !described.config->is_object();
  ConfigReader config(bare ? nothing : *described.config, source + ": the metric " + described.class_name);
  const std::string name = config.text("name", described.class_name);
  config.ignore({"dtype", "fn"});

  std::optional<Metric> metric;
  std::vector<std::string_view> known;
  for_each_alternative<Metric>([&]<typename T>(std::type_identity<T>) {
    known.push_back(MetricTraits<T>::name);
    if (!is_name_of<T>(name)) return;
    if (name != known.back()) {
      throw DataError(
          fmt::format("{}: the metric {} has Keras' short name, under which Keras logs it and Lockstep does "
                      "not; compile the model with metrics=['{}']",
                      source, name, known.back()));
    }
    T options;
    FieldReader reader(config, name);
    MetricTraits<T>::fields(reader, options);
    metric = options;
  });
  if (!metric)
    throw DataError(source + ": the metric " + name + " is not one of " + join_words(known) + compile_remedy);
  config.reject_unread_keys();
  return *metric;
}

/// Keras 3 writes the metrics as passed to compile(). Keras 2 writes one list per output with one object per metric.
void read_metrics(const json& value, const std::string& source, std::vector<Metric>& metrics) {
  if (value.is_null()) return;
  if (value.is_array()) {
    for (const json& entry : value) {
      const bool is_only_output = entry.is_array() && value.size() == 1;
      if (entry.is_array() && !is_only_output) {
        throw DataError(source + ": has metrics for several outputs, but Lockstep's models have one" + compile_remedy);
      }
      read_metrics(entry, source, metrics);
    }
    return;
  }
  metrics.push_back(read_metric(value, source));
}

}  // namespace

CompileState training_config_from_json(const std::string& text, const std::string& source) {
  const json document = parse_json(text, source);
  ConfigReader config(document, source);
  const json* const optimizer = config.find("optimizer_config");
  const json* const loss = config.find("loss");
  if (optimizer == nullptr) config.fail("lacks the key 'optimizer_config'");
  if (loss == nullptr) config.fail("lacks the key 'loss'");
  CompileState training{{read_optimizer(*optimizer, source), read_loss(*loss, source), {}}, 0, {}};
  if (const json* const metrics = config.find("metrics")) read_metrics(*metrics, source, training.metrics);
  if (const json* const weighted = config.find("weighted_metrics"))
    read_metrics(*weighted, source, training.weighted_metrics);
  config.ignore({"run_eagerly", "steps_per_execution", "jit_compile"});  // these change Keras' speed, not the result
  config.reject_unread_keys();
  return training;
}

}  // namespace lockstep
