// Models and compilations as JSON. Keras refuses keys it does not know, so newer keys shut out older readers: only
// those are written that every version from tf_keras 2 to Keras 3.15 takes.
#include "checkpoint/keras_config.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lockstep {
namespace {

using json = nlohmann::ordered_json;

json to_json(Extent extent) { return json::array({extent.height, extent.width}); }

json to_json(Padding padding) { return padding == Padding::same ? "same" : "valid"; }

json to_json(Initializer initializer) {
  const auto random = [](const char* name) { return json{{"class_name", name}, {"config", {{"seed", nullptr}}}}; };
  const auto constant = [](const char* name) { return json{{"class_name", name}, {"config", json::object()}}; };
  switch (initializer) {
    case Initializer::glorot_uniform: return random("GlorotUniform");
    case Initializer::glorot_normal: return random("GlorotNormal");
    case Initializer::he_uniform: return random("HeUniform");
    case Initializer::he_normal: return random("HeNormal");
    case Initializer::zeros: return constant("Zeros");
    case Initializer::ones: return constant("Ones");
  }
  throw InternalError("An initializer has no Keras name; please report this.");
}

/// The shape with the batch dimension left open.
json with_batch(const Shape& shape) {
  json extents = json::array({nullptr});
  for (const std::int64_t extent : shape.extents()) extents.push_back(extent);
  return extents;
}

/// Adds a layer's own keys to those that all layers have.
class LayerWriter {
 public:
  explicit LayerWriter(json& config) : config_(config) {}

  void operator()(const Input& input) const {
    config_.erase("trainable");
    config_["batch_input_shape"] = with_batch(input.shape);
  }
  void operator()(const Reshape& reshape) const {
    config_["target_shape"] = json::array();
    for (const std::int64_t extent : reshape.target_shape.extents()) config_["target_shape"].push_back(extent);
  }
  void operator()(const Rescaling& rescaling) const {
    config_["scale"] = rescaling.scale;
    config_["offset"] = rescaling.offset;
  }
  void operator()(const Flatten&) const { channels_last(); }
  void operator()(const Conv2D& conv) const {
    config_["filters"] = conv.filters;
    config_["kernel_size"] = to_json(conv.kernel_size);
    config_["strides"] = to_json(conv.strides);
    config_["padding"] = to_json(conv.padding);
    channels_last();
    config_["dilation_rate"] = to_json(conv.dilation_rate);
    weights(conv);
  }
  void operator()(const Dense& dense) const {
    config_["units"] = dense.units;
    weights(dense);
  }
  void operator()(const MaxPooling2D& pooling) const { pool(pooling); }
  void operator()(const AveragePooling2D& pooling) const { pool(pooling); }
  void operator()(const GlobalAveragePooling2D&) const {
    channels_last();
    config_["keepdims"] = false;
  }
  void operator()(const Dropout& dropout) const {
    config_["rate"] = dropout.rate;
    config_["seed"] = nullptr;
    config_["noise_shape"] = nullptr;
  }
  void operator()(const BatchNormalization& normalization) const {
    config_["axis"] = -1;
    config_["momentum"] = normalization.momentum;
    config_["epsilon"] = normalization.epsilon;
    config_["center"] = normalization.center;
    config_["scale"] = normalization.scale;
    config_["beta_initializer"] = to_json(Initializer::zeros);
    config_["gamma_initializer"] = to_json(Initializer::ones);
    config_["moving_mean_initializer"] = to_json(Initializer::zeros);
    config_["moving_variance_initializer"] = to_json(Initializer::ones);
  }
  void operator()(const Activation& activation) const { config_["activation"] = name_of(activation.function); }

 private:
  void channels_last() const { config_["data_format"] = "channels_last"; }

  template <class Options>
  void weights(const Options& layer) const {
    config_["activation"] = name_of(layer.activation);
    config_["use_bias"] = layer.use_bias;
    config_["kernel_initializer"] = to_json(layer.kernel_initializer);
    config_["bias_initializer"] = to_json(layer.bias_initializer);
  }

  template <class Pooling>
  void pool(const Pooling& pooling) const {
    config_["pool_size"] = to_json(pooling.pool_size);
    config_["padding"] = to_json(pooling.padding);
    config_["strides"] = to_json(pooling.strides.height == 0 ? pooling.pool_size : pooling.strides);
    channels_last();
  }

  json& config_;
};

json to_json(const LayerInfo& layer) {
  json config{{"name", layer.name}, {"trainable", true}, {"dtype", "float32"}};
  std::visit(LayerWriter(config), layer.layer);
  return {{"class_name", layer.class_name}, {"config", config}};
}

/// Keras asks a schedule's rates to be floats, its steps to be numbers.
json to_json(Steps steps) {
  constexpr double largest = 1e15;  // beyond which a double may be no whole number's own
  if (steps.count == std::floor(steps.count) && std::abs(steps.count) < largest) {
    return static_cast<std::int64_t>(steps.count);
  }
  return steps.count;
}

class ScheduleWriter {
 public:
  json operator()(double constant) const { return constant; }
  json operator()(const ExponentialDecay& decay) const { return to_rate(decay); }
  json operator()(const InverseTimeDecay& decay) const { return to_rate(decay); }
  json operator()(const PiecewiseConstantDecay& decay) const {
    json boundaries = json::array();
    for (const Steps& boundary : decay.boundaries) boundaries.push_back(to_json(boundary));
    return {{"boundaries", boundaries}, {"values", decay.values}};
  }
  json operator()(const PolynomialDecay& decay) const {
    json config = begin(decay);
    config["end_learning_rate"] = decay.end_learning_rate;
    config["power"] = decay.power;
    config["cycle"] = decay.cycle;
    return config;
  }
  json operator()(const CosineDecay& decay) const {
    json config = begin(decay);
    config["alpha"] = decay.alpha;
    if (decay.warmup_target) {  // of Keras 2.13 and later
      config["warmup_target"] = *decay.warmup_target;
      config["warmup_steps"] = to_json(decay.warmup_steps);
    }
    return config;
  }

 private:
  template <class Decay>
  static json begin(const Decay& decay) {
    return {{"initial_learning_rate", decay.initial_learning_rate}, {"decay_steps", to_json(decay.decay_steps)}};
  }
  template <class Decay>
  static json to_rate(const Decay& decay) {
    json config = begin(decay);
    config["decay_rate"] = decay.decay_rate;
    config["staircase"] = decay.staircase;
    return config;
  }
};

/// Without its module Keras 3 does not find a schedule's class, in files of either form.
json to_json(const LearningRate& rate) {
  json config = std::visit(ScheduleWriter(), rate.kind());
  if (rate.is_constant()) return config;
  return {{"module", "keras.optimizers.schedules"},
          {"class_name", name_of(rate)},
          {"config", std::move(config)},
          {"registered_name", nullptr}};
}

json to_json(const Optimizer& optimizer) {
  json config{{"name", keras_name_of(optimizer)}, {"learning_rate", to_json(learning_rate_of(optimizer))}};
  const auto moments = [&config](const auto& adam) {
    config["beta_1"] = adam.beta_1;
    config["beta_2"] = adam.beta_2;
    config["epsilon"] = adam.epsilon;
    config["amsgrad"] = false;
  };
  if (const auto* sgd = std::get_if<SGD>(&optimizer)) {
    config["momentum"] = sgd->momentum;
    config["nesterov"] = sgd->nesterov;
  } else if (const auto* adam = std::get_if<Adam>(&optimizer)) {
    moments(*adam);
  } else if (const auto* adamw = std::get_if<AdamW>(&optimizer)) {
    config["weight_decay"] = adamw->weight_decay;
    moments(*adamw);
  } else {
    const auto& rmsprop = std::get<RMSprop>(optimizer);
    config["rho"] = rmsprop.rho;
    config["momentum"] = rmsprop.momentum;
    config["epsilon"] = rmsprop.epsilon;
    config["centered"] = rmsprop.centered;
  }
  const Clipping clipping = clipping_of(optimizer);
  if (clipping.kind != ClippingKind::none) config[std::string(name_of(clipping.kind))] = clipping.bound;
  return {{"class_name", name_of(optimizer)}, {"config", config}};
}

json to_json(const Loss& loss) {
  json config{{"name", name_of(loss)}, {"reduction", "sum_over_batch_size"}};
  const char* class_name = "MeanSquaredError";
  if (const auto* sparse = std::get_if<SparseCategoricalCrossentropy>(&loss)) {
    class_name = "SparseCategoricalCrossentropy";
    config["from_logits"] = sparse->from_logits;
  } else if (const auto* categorical = std::get_if<CategoricalCrossentropy>(&loss)) {
    class_name = "CategoricalCrossentropy";
    config["from_logits"] = categorical->from_logits;
  }
  return {{"class_name", class_name}, {"config", config}};
}

std::string dump(const json& value) {
  try {
    return value.dump();
  } catch (const json::exception&) {
    throw UsageError("A name in the model is not UTF-8, which Keras' files demand: rename the layer or the model.");
  }
}

}  // namespace

std::string sequential_to_json(const Sequential& architecture) {
  json layers = json::array();
  for (const LayerInfo& layer : architecture.layers()) layers.push_back(to_json(layer));
  return dump({{"class_name", "Sequential"}, {"config", {{"name", architecture.name()}, {"layers", layers}}}});
}

std::string training_to_json(const SavedTraining& training) {
  json metrics = json::array();
  for (const Metric metric : training.metrics) metrics.push_back(name_of(metric));
  return dump({{"loss", to_json(training.loss)},
               {"metrics", metrics},
               {"weighted_metrics", nullptr},
               {"loss_weights", nullptr},
               {"optimizer_config", to_json(training.optimizer)}});
}

}  // namespace lockstep
