// Optimizer, loss and metrics from Keras' training_config, in the words of Keras 2 (tf_keras) and Keras 3.
#include "checkpoint/config_reader.hpp"
#include "checkpoint/keras_config.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* remedy =
    "; compile the model with what Lockstep has, or save it with include_optimizer=False, which leaves this out";

template <class Adaptive>
void read_moments(ConfigReader& config, Adaptive& options) {
  options.beta_1 = config.number("beta_1", options.beta_1);
  options.beta_2 = config.number("beta_2", options.beta_2);
  options.epsilon = config.number("epsilon", options.epsilon);
}

template <class Options>
void read_clipping(ConfigReader& config, Options& options) {
  options.clipnorm = config.number("clipnorm", 0);
  options.clipvalue = config.number("clipvalue", 0);
  options.global_clipnorm = config.number("global_clipnorm", 0);
}

template <class Options>
Options read_decay(ConfigReader& config) {
  Options options;
  options.initial_learning_rate = config.number("initial_learning_rate");
  options.decay_steps = config.number("decay_steps");
  return options;
}

/// decay_rate and staircase too.
template <class Options>
Options read_decay_by_rate(ConfigReader& config) {
  auto options = read_decay<Options>(config);
  options.decay_rate = config.number("decay_rate");
  options.staircase = config.flag("staircase", options.staircase);
  return options;
}

LearningRate read_schedule(const std::string& class_name, ConfigReader& config) {
  if (class_name == "ExponentialDecay") return ExponentialDecay(read_decay_by_rate<ExponentialDecayOptions>(config));
  if (class_name == "InverseTimeDecay") return InverseTimeDecay(read_decay_by_rate<InverseTimeDecayOptions>(config));
  if (class_name == "PiecewiseConstantDecay") {
    const std::vector<double> boundaries = config.numbers("boundaries");
    return PiecewiseConstantDecay(
        {.boundaries = {boundaries.begin(), boundaries.end()}, .values = config.numbers("values")});
  }
  if (class_name == "PolynomialDecay") {
    auto options = read_decay<PolynomialDecayOptions>(config);
    options.end_learning_rate = config.number("end_learning_rate", options.end_learning_rate);
    options.power = config.number("power", options.power);
    options.cycle = config.flag("cycle", options.cycle);
    return PolynomialDecay(options);
  }
  if (class_name == "CosineDecay") {
    auto options = read_decay<CosineDecayOptions>(config);
    options.alpha = config.number("alpha", options.alpha);
    if (config.find("warmup_target") != nullptr) options.warmup_target = config.number("warmup_target");
    options.warmup_steps = config.number("warmup_steps", 0);
    return CosineDecay(options);
  }
  config.fail(
      std::string("is not one of ExponentialDecay, PiecewiseConstantDecay, PolynomialDecay, InverseTimeDecay and "
                  "CosineDecay") +
      remedy);
}

/// A number, or a schedule as an object with a class.
LearningRate read_learning_rate(ConfigReader& config, const LearningRate& fallback, const std::string& where) {
  const json* const value = config.find("learning_rate");
  if (value == nullptr) return fallback;
  if (!value->is_object()) return config.number("learning_rate");
  const ClassConfig described(*value, where + "'s learning_rate");
  ConfigReader options(*described.config, where + "'s learning_rate " + described.class_name);
  LearningRate rate = read_schedule(described.class_name, options);
  options.ignore({"name"});
  options.finish();
  return rate;
}

Optimizer read_class(const ClassConfig& described, ConfigReader& config, const std::string& where) {
  if (described.class_name == "SGD") {
    SGDOptions options;
    options.learning_rate = read_learning_rate(config, options.learning_rate, where);
    options.momentum = config.number("momentum", options.momentum);
    options.nesterov = config.flag("nesterov", options.nesterov);
    read_clipping(config, options);
    return SGD(options);
  }
  if (described.class_name == "Adam") {
    AdamOptions options;
    options.learning_rate = read_learning_rate(config, options.learning_rate, where);
    read_moments(config, options);
    read_clipping(config, options);
    return Adam(options);
  }
  if (described.class_name == "AdamW") {
    AdamWOptions options;
    options.learning_rate = read_learning_rate(config, options.learning_rate, where);
    options.weight_decay = config.number("weight_decay", options.weight_decay);
    read_moments(config, options);
    read_clipping(config, options);
    return AdamW(options);
  }
  if (described.class_name == "RMSprop") {
    RMSpropOptions options;
    options.learning_rate = read_learning_rate(config, options.learning_rate, where);
    options.rho = config.number("rho", options.rho);
    options.momentum = config.number("momentum", options.momentum);
    options.epsilon = config.number("epsilon", options.epsilon);
    options.centered = config.flag("centered", options.centered);
    read_clipping(config, options);
    return RMSprop(options);
  }
  config.fail(std::string("is not one of SGD, Adam, AdamW and RMSprop") + remedy);
}

Optimizer read_optimizer(const json& value, const std::string& source) {
  ClassConfig described(value, source + ": the optimizer");
  if (described.class_name.starts_with("Custom>")) described.class_name.erase(0, 7);  // tf_keras so marks its own
  const std::string where = source + ": the optimizer " + described.class_name;
  ConfigReader config(*described.config, where);
  Optimizer optimizer = read_class(described, config, where);
  // Names, how it is compiled, and constants of an average that use_ema would switch on.
  config.ignore({"name", "jit_compile", "is_legacy_optimizer", "ema_momentum", "ema_overwrite_frequency"});
  config.expect("decay", 0.0);
  config.finish();
  try {
    check(optimizer);
  } catch (const UsageError& error) {
    throw DataError(source + ": " + error.what());
  }
  return optimizer;
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
  if (config.text("reduction", "auto") != "auto") config.expect("reduction", "sum_over_batch_size");

  Loss loss = MeanSquaredError();
  if (name == "SparseCategoricalCrossentropy" || name == "sparse_categorical_crossentropy") {
    loss = SparseCategoricalCrossentropy({.from_logits = config.flag("from_logits", false)});
    config.expect("axis", -1);
  } else if (name == "CategoricalCrossentropy" || name == "categorical_crossentropy") {
    loss = CategoricalCrossentropy({.from_logits = config.flag("from_logits", false)});
    config.expect("axis", -1);
    config.expect("label_smoothing", 0);
  } else if (name != "MeanSquaredError" && name != "mean_squared_error" && name != "mse") {
    config.fail(
        std::string("is not one of SparseCategoricalCrossentropy, CategoricalCrossentropy and MeanSquaredError") +
        remedy);
  }
  config.finish();
  return loss;
}

/// Keras 3 writes what was given to compile, Keras 2 a list a output with one object a metric.
void read_metrics(const json& value, const std::string& source, std::vector<Metric>& metrics) {
  if (value.is_null()) return;
  if (value.is_array()) {
    for (const json& entry : value) {
      const bool one_list_in_another = entry.is_array() && value.size() == 1;
      if (entry.is_array() && !one_list_in_another) {
        throw DataError(source + ": has metrics for several outputs, but Lockstep's models have one" + remedy + ".");
      }
      read_metrics(entry, source, metrics);
    }
    return;
  }
  const ClassConfig described(value, source + ": a metric");
  std::string name = described.class_name;
  if (described.config->is_object() && described.config->contains("name") && described.config->at("name").is_string()) {
    name = described.config->at("name").get<std::string>();
  }
  if (name != name_of(Metric::accuracy)) {
    throw DataError(source + ": the metric " + name + " is not 'accuracy', the one that Lockstep has" + remedy + ".");
  }
  metrics.push_back(Metric::accuracy);
}

}  // namespace

SavedTraining training_from_json(const std::string& text, const std::string& source) {
  const json document = parse_json(text, source);
  ConfigReader config(document, source);
  const json* const optimizer = config.find("optimizer_config");
  const json* const loss = config.find("loss");
  if (optimizer == nullptr) config.fail("lacks the key 'optimizer_config'");
  if (loss == nullptr) config.fail("lacks the key 'loss'");
  SavedTraining training{read_optimizer(*optimizer, source), read_loss(*loss, source), {}, 0, {}};
  if (const json* const metrics = config.find("metrics")) read_metrics(*metrics, source, training.metrics);
  config.ignore({"run_eagerly", "steps_per_execution", "jit_compile"});  // how Keras ran it, not what was computed
  config.finish();
  return training;
}

}  // namespace lockstep
