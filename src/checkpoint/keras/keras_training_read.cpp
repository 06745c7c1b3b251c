// Reads losses and metrics, and with keras_optimizer_read.hpp the optimizer, from the training_config of Keras 2
// (tf_keras) and Keras 3.
#include "checkpoint/keras/field_reader.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_optimizer_read.hpp"
#include "core/join_words.hpp"
#include "core/printable.hpp"
#include "core/variant_types.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

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

/// The only element of a list or dictionary with one for each output; other values as they are. Keras ignores the key
/// of a metric, and does not train with a loss of another output.
const json& of_only_output(const json& value, const std::string& what, const std::string& source) {
  const bool is_dictionary = value.is_object() && !value.contains("class_name");
  if (!value.is_array() && !is_dictionary) return value;
  if (value.size() == 1) return *value.begin();
  throw DataError(
      fmt::format("{}: has {} {}, but the model has one output{}", source, value.size(), what, compile_remedy));
}

/// For each of several outputs its element of a list or dictionary of Keras; null where there is none. `what`:
/// "losses".
std::vector<const json*> by_output(const json& value, const DescribedOutputs& outputs, const std::string& what,
                                   const std::string& source) {
  std::vector<const json*> found;
  if (value.is_array() && value.size() == outputs.all.size()) {
    for (const json& each : value) found.push_back(&each);
    return found;
  }
  if (!value.is_object() || value.contains("class_name")) {
    throw DataError(fmt::format("{}: the {} are not a list with one entry for each of the model's {} outputs{}", source,
                                what, outputs.all.size(), compile_remedy));
  }
  std::vector<std::string> names;
  for (const DescribedOutput& output : outputs.all) {
    const auto entry = value.find(output.name);
    found.push_back(entry == value.end() ? nullptr : &*entry);
    names.push_back(output.name);
  }
  for (const auto& [key, entry] : value.items()) {
    if (std::ranges::find(names, key) != names.end()) continue;
    throw DataError(
        fmt::format("{}: has {} of the output '{}', which the model lacks; compile the model with those of its "
                    "outputs, {}",
                    source, what, key, join_words(names)));
  }
  return found;
}

template <typename T>
bool names_loss(const ClassConfig& described) {
  using Traits = LossTraits<T>;
  const std::string& name = described.class_name;
  switch (described.form) {
    case ConfigForm::object: return name == Traits::class_name;
    case ConfigForm::function: return name == Traits::function_name;
    case ConfigForm::name: break;
  }
  const bool is_alias = std::ranges::find(Traits::aliases, name) != Traits::aliases.end();
  return is_alias || name == Traits::class_name || name == Traits::function_name;
}

void require_loss_of_only_output(const json& value, const DescribedOutput& output, const std::string& source) {
  if (!value.is_object() || value.contains("class_name") || value.size() != 1 || output.name.empty()) return;
  if (const std::string key = value.begin().key(); key != output.name) {
    throw DataError(fmt::format(
        "{}: has a loss of the output '{}', but the model's output is '{}'; compile the model with that name, "
        "or with the loss alone, or give --loss",
        source, key, output.name));
  }
}

Loss read_loss(const json& value, const std::string& source) {
  const ClassConfig described(of_only_output(value, "losses", source), source + ": the loss");
  ConfigReader config(*described.config, source + ": the loss " + described.class_name);
  config.ignore({"name", "fn"});
  config.expect("dtype", "float32");
  const Reduction reduction = read_reduction(config, described.config->contains("reduction"));

  std::optional<Loss> loss;
  std::vector<std::string_view> known;
  for_each_alternative<Loss>([&]<typename T>(std::type_identity<T>) {
    using Traits = LossTraits<T>;
    known.push_back(Traits::class_name);
    if (!names_loss<T>(described)) return;
    T options;
    FieldReader reader(config, described.class_name);
    Traits::fields(reader, options);
    options.reduction = reduction;
    loss = options;
  });
  if (!loss) config.fail("is not one of " + join_words(known) + compile_remedy);
  config.reject_unread_keys();
  return *loss;
}

/// What a metric is computed for.
struct Judged {
  const Loss& loss;
  std::optional<std::int64_t> outputs;
};

/// Keras replaces "accuracy" by a class that suits the shapes, and Keras 2 writes that class, or the function around
/// which it is a MeanMetricWrapper.
bool is_accuracy(const std::string& name, const std::string& log_name, ConfigReader& config, const Judged& judged) {
  if (log_name != MetricTraits<metrics::Accuracy>::name) return false;
  if (name == "binary_accuracy") return judged.outputs.value_or(1) == 1;
  if (name == "BinaryAccuracy") return judged.outputs == 1 && config.number("threshold", 0.5) == 0.5;
  if (judged.outputs == 1) return false;
  if (name == "SparseCategoricalAccuracy") return takes_classes(judged.loss);
  if (name == "CategoricalAccuracy") return !takes_classes(judged.loss);
  return name == "sparse_categorical_accuracy" || name == "categorical_accuracy";
}

/// Whether the file means T. A metric's name is what logs call it and says nothing of what it computes.
template <typename T>
bool names_metric(const ClassConfig& described, const std::string& function, const std::string& log_name,
                  ConfigReader& config, const Judged& judged) {
  constexpr bool is_shape_dependent = std::is_same_v<T, metrics::Accuracy>;
  using Traits = MetricTraits<T>;
  if (described.form == ConfigForm::name) return is_name_of<T>(described.class_name);
  const bool is_accuracy_here =
      is_accuracy(function.empty() ? described.class_name : function, log_name, config, judged);
  if (is_shape_dependent || is_accuracy_here) return is_shape_dependent && is_accuracy_here;
  if (described.form == ConfigForm::function) return Traits::is_function && described.class_name == Traits::name;
  return described.class_name == "MeanMetricWrapper" ? Traits::is_function && function == Traits::name
                                                     : described.class_name == Traits::class_name;
}

/// Keras logs a metric under the name of the object, or under the text that was passed to compile(). Empty: its
/// automatic name.
std::string log_name_of(const ClassConfig& described, ConfigReader& config) {
  std::string name = described.form == ConfigForm::name ? described.class_name : config.text("name", "");
  if (printable(name) != name) config.fail("has a name with characters that cannot be printed");
  return name;
}

/// Of integers Keras takes the backend's.
template <typename T>
void expect_dtype(ConfigReader& config) {
  if constexpr (requires { MetricTraits<T>::counts_whole_numbers; }) {
    const std::string type = config.text("dtype", "int32");
    if (type == "int32" || type == "int64") return;
  }
  config.expect("dtype", "float32");
}

Metric read_metric(const json& value, const std::string& source, const Judged& judged) {
  const ClassConfig described(value, source + ": a metric");
  ConfigReader config(*described.config, source + ": the metric " + described.class_name);
  const std::string log_name = log_name_of(described, config);
  const std::string function = config.text("fn", "");

  std::optional<Metric> metric;
  std::vector<std::string_view> known;
  for_each_alternative<Metric>([&]<typename T>(std::type_identity<T>) {
    using Traits = MetricTraits<T>;
    known.push_back(Traits::name);
    if (!names_metric<T>(described, function, log_name, config, judged)) return;
    T options;
    FieldReader reader(config, described.class_name);
    reader.take_null();
    expect_dtype<T>(config);
    Traits::fields(reader, options);
    if (log_name != Traits::name) options.name = log_name;
    metric = options;
  });
  if (!metric) config.fail("is not one of " + join_words(known) + compile_remedy);
  config.reject_unread_keys();
  return *metric;
}

/// Keras 3 writes the metrics as passed to compile(): one, a list, or a dictionary by output. Keras 2 writes one list
/// per output with one object per metric.
void read_metrics(const json& value, const std::string& source, const Judged& judged, std::vector<Metric>& metrics) {
  if (value.is_null()) return;
  const bool is_list_per_output =
      value.is_array() && std::ranges::any_of(value, [](const json& entry) { return entry.is_array(); });
  const bool is_dictionary = value.is_object() && !value.contains("class_name");
  if (is_list_per_output || is_dictionary) {
    read_metrics(of_only_output(value, "lists of metrics", source), source, judged, metrics);
  } else if (value.is_array()) {
    for (const json& entry : value) metrics.push_back(read_metric(entry, source, judged));
  } else {
    metrics.push_back(read_metric(value, source, judged));
  }
}

bool is_one_loss(const json& value) { return value.is_string() || (value.is_object() && value.contains("class_name")); }

/// One loss for all outputs, or one for each.
void read_losses(const json& value, const std::string& source, const DescribedOutputs& outputs,
                 std::vector<OutputOptions>& read) {
  const bool is_one = is_one_loss(value);
  const std::vector<const json*> losses =
      is_one ? std::vector<const json*>(outputs.all.size(), &value) : by_output(value, outputs, "losses", source);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    read[i].output = outputs.all[i].name;
    if (losses[i] == nullptr || losses[i]->is_null()) {
      throw DataError(fmt::format("{}: the output '{}' has no loss, but Lockstep trains all outputs{}", source,
                                  outputs.all[i].name, compile_remedy));
    }
    read[i].loss = read_loss(*losses[i], source);
  }
}

void read_loss_weights(const json& value, const std::string& source, const DescribedOutputs& outputs,
                       std::vector<OutputOptions>& read) {
  const std::vector<const json*> weights = by_output(value, outputs, "loss_weights", source);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == nullptr || !weights[i]->is_number()) {
      throw DataError(
          fmt::format("{}: the output '{}' has no number in loss_weights; give it one, such as 1, in model.compile()",
                      source, outputs.all[i].name));
    }
    read[i].loss_weight = weights[i]->get<double>();
  }
}

void refuse_weight_of_only_loss(const json& value, const std::string& source) {
  const json weight = of_only_output(value, "loss_weights", source);  // a copy: GCC 14 fears for the reference
  if (weight.is_null() || (weight.is_number() && weight.get<double>() == 1.0)) return;
  throw DataError(
      fmt::format("{}: has the loss_weights {}, which Lockstep has for models of several outputs only; compile the "
                  "model without them, and give each example this weight (sample_weight)",
                  source, printable(value.dump())));
}

void read_metrics_by_output(const json& value, const std::string& source, const DescribedOutputs& outputs,
                            std::vector<OutputOptions>& read, std::vector<Metric> OutputOptions::*list) {
  if (value.is_null() || (value.is_array() && value.empty())) return;
  const std::vector<const json*> metrics = by_output(value, outputs, "metrics", source);
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const Judged judged{read[i].loss, outputs.all[i].last_axis};
    if (metrics[i] != nullptr) read_metrics(*metrics[i], source, judged, read[i].*list);
  }
}

}  // namespace

CompileState training_config_from_json(const std::string& text, const std::string& source,
                                       const DescribedOutputs& outputs, UnsupportedCompilation unsupported,
                                       KerasVersion version) {
  const json document = parse_json(text, source);
  ConfigReader config(document, source);
  CompileState training;
  const bool has_several = outputs.all.size() > 1;
  if (has_several) training.outputs.resize(outputs.all.size());
  const auto read_part = [unsupported](std::string& refusal, const auto& read) {
    try {
      read();
    } catch (const DataError& error) {
      if (unsupported == UnsupportedCompilation::refuse) throw;
      refusal = error.what();
    }
  };
  read_part(training.refusals.optimizer, [&] {
    const json* const optimizer = config.find("optimizer_config");
    if (optimizer == nullptr) {
      config.fail(
          "has no optimizer (Keras leaves it out when it saves a model a second time); compile the model again before "
          "you save it");
    }
    training.optimizer = read_optimizer(*optimizer, source, version);
  });
  read_part(training.refusals.loss, [&] {
    const json* const loss = config.find("loss");
    if (loss == nullptr) config.fail("has no loss" + std::string(compile_remedy));
    if (!has_several) {
      require_loss_of_only_output(*loss, outputs.all.front(), source);
      training.loss = read_loss(*loss, source);
      if (const json* const weight = config.find("loss_weights")) refuse_weight_of_only_loss(*weight, source);
      return;
    }
    read_losses(*loss, source, outputs, training.outputs);
    const json* const weights = config.find("loss_weights");
    if (weights == nullptr) return;
    if (version == KerasVersion::three && is_one_loss(*loss)) {
      config.fail(
          fmt::format("has loss_weights, but one loss for {} outputs, which Keras refuses; compile the model with "
                      "a loss for each",
                      outputs.all.size()));
    }
    read_loss_weights(*weights, source, outputs, training.outputs);
  });
  read_part(training.refusals.metrics, [&] {
    if (has_several) {
      for (const auto& [key, list] :
           {std::pair("metrics", &OutputOptions::metrics), {"weighted_metrics", &OutputOptions::weighted_metrics}}) {
        if (const json* const found = config.find(key))
          read_metrics_by_output(*found, source, outputs, training.outputs, list);
      }
      return;
    }
    const Judged judged{training.loss, outputs.all.front().last_axis};
    for (const auto& [key, list] :
         {std::pair("metrics", &training.metrics), {"weighted_metrics", &training.weighted_metrics}}) {
      if (const json* const found = config.find(key)) read_metrics(*found, source, judged, *list);
    }
  });
  config.ignore({"run_eagerly", "jit_compile", "steps_per_execution"});  // these change Keras' speed, not the result
  config.ignore({"metrics", "weighted_metrics"});                        // some are unread if one is refused
  if (!training.refusals.loss.empty()) return training;
  read_part(training.refusals.loss, [&] {
    if (config.integer("steps_per_execution", 1) < 1) config.fail_unsupported("steps_per_execution");
    config.reject_unread_keys();
  });
  return training;
}

void refuse_rules_of_keras2(CompileState& training, const std::string& source) {
  if (!training.refusals.optimizer.empty()) return;
  const bool averages = std::visit([](const auto& optimizer) { return optimizer.use_ema; }, training.optimizer);
  if (!averages && !std::holds_alternative<Nadam>(training.optimizer)) return;
  training.refusals.optimizer = fmt::format(
      "{} was compiled in Keras 2 with {}, which computes otherwise than that of Keras 3 and of Lockstep; "
      "compile the model in Keras 3",
      source, averages ? "use_ema" : "Nadam");
}

}  // namespace lockstep
