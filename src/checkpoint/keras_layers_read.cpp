// Layers from Keras' JSON, in the words of Keras 2 (tf_keras) and Keras 3. An option that Lockstep lacks is refused by
// name; one that is switched off, or has no bearing on results, is passed over.
#include "checkpoint/config_reader.hpp"
#include "checkpoint/keras_config.hpp"
#include "checkpoint/keras_functional.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

ActivationFunction read_activation(ConfigReader& config) {
  const json* value = config.find("activation");
  if (value == nullptr) return ActivationFunction::linear;
  // Keras 3 also writes a function as {"class_name": "function", "config": "relu"}.
  if (value->is_object() && value->contains("config") && value->at("config").is_string()) value = &value->at("config");
  for (const auto function : {ActivationFunction::linear, ActivationFunction::relu, ActivationFunction::sigmoid,
                              ActivationFunction::tanh, ActivationFunction::softmax}) {
    if (*value == json(name_of(function))) return function;
  }
  config.refuse("activation");
}

struct InitializerNames {
  Initializer initializer;
  std::string_view class_name;
  std::string_view short_name;
};
constexpr std::array initializers{
    InitializerNames{Initializer::glorot_uniform, "GlorotUniform", "glorot_uniform"},
    InitializerNames{Initializer::glorot_normal, "GlorotNormal", "glorot_normal"},
    InitializerNames{Initializer::he_uniform, "HeUniform", "he_uniform"},
    InitializerNames{Initializer::he_normal, "HeNormal", "he_normal"},
    InitializerNames{Initializer::zeros, "Zeros", "zeros"},
    InitializerNames{Initializer::ones, "Ones", "ones"},
};

Padding read_padding(ConfigReader& config) {
  const std::string padding = config.text("padding", "valid");
  if (padding == "same") return Padding::same;
  if (padding != "valid") config.refuse("padding");
  return Padding::valid;
}

/// One layer, of which only the class is known so far.
class LayerReader {
 public:
  LayerReader(const ClassConfig& layer, const std::string& source, std::size_t index)
      : class_name_(layer.class_name),
        where_(source + ": layer " + std::to_string(index) + " (" + class_name_ + ")"),
        config_(*layer.config, where_),
        name_(config_.text("name", "")) {
    config_.expect("trainable", true);
    config_.expect("data_format", "channels_last");
    read_dtype();
    config_.ignore({"batch_input_shape"});  // whoever reads the list turned the first layer's into an Input
  }

  Layer read() {
    Layer layer = read_class();
    config_.finish();
    return layer;
  }

 private:
  Layer read_class() {
    if (class_name_ == "InputLayer") return read_input();
    if (class_name_ == "Reshape") return Reshape(config_.shape("target_shape", false), name_);
    if (class_name_ == "Rescaling") {
      const double scale = config_.number("scale");
      return Rescaling(scale, config_.number("offset", 0), name_);
    }
    if (class_name_ == "Flatten") return Flatten(name_);
    if (class_name_ == "Conv2D") return read_conv();
    if (class_name_ == "Dense") return read_dense();
    if (class_name_ == "MaxPooling2D") return read_pooling<MaxPooling2D>();
    if (class_name_ == "AveragePooling2D") return read_pooling<AveragePooling2D>();
    if (class_name_ == "GlobalAveragePooling2D") return GlobalAveragePooling2D(name_);
    if (class_name_ == "Dropout") {
      config_.ignore({"seed"});  // masks are drawn from the job's seed
      return Dropout(config_.number("rate"), name_);
    }
    if (class_name_ == "BatchNormalization") return read_normalization();
    if (class_name_ == "Activation") return Activation(read_activation(config_), name_);
    config_.fail(
        "is of a class that Lockstep does not have; it has InputLayer, Reshape, Rescaling, Flatten, Conv2D, Dense, "
        "MaxPooling2D, AveragePooling2D, GlobalAveragePooling2D, Dropout, BatchNormalization and Activation");
  }

  /// "float32" (Keras 2), or Keras 3's policy object around it.
  void read_dtype() {
    const json* const dtype = config_.find("dtype");
    if (dtype == nullptr || *dtype == json("float32")) return;
    if (!dtype->is_object()) config_.refuse("dtype");
    const auto policy = dtype->find("config");
    if (policy == dtype->end() || !policy->is_object() || policy->value("name", json()) != json("float32")) {
      config_.refuse("dtype");
    }
  }

  Initializer read_initializer(const std::string& key, Initializer fallback) {
    const json* const value = config_.find(key);
    if (value == nullptr) return fallback;
    const ClassConfig described(*value, where_ + "'s " + key);
    for (const InitializerNames& names : initializers) {
      if (described.class_name != names.class_name && described.class_name != names.short_name) continue;
      ConfigReader options(*described.config, where_ + "'s " + key);
      options.ignore({"seed", "dtype"});
      options.finish();
      return names.initializer;
    }
    config_.refuse(key);
  }

  void expect_initializer(const std::string& key, Initializer only) {
    if (read_initializer(key, only) != only) config_.refuse(key);
  }

  Input read_input() {
    const bool keras3 = config_.find("batch_shape") != nullptr;
    return Input(config_.shape(keras3 ? "batch_shape" : "batch_input_shape", true), name_);
  }

  Conv2D read_conv() {
    Conv2DOptions options;
    options.strides = config_.extent("strides", 1);
    options.padding = read_padding(config_);
    options.dilation_rate = config_.extent("dilation_rate", 1);
    read_weights(options);
    config_.expect("groups", 1);
    const int filters = config_.integer("filters");
    return {filters, config_.extent("kernel_size"), options};
  }

  Dense read_dense() {
    DenseOptions options;
    read_weights(options);
    return Dense(config_.integer("units"), options);
  }

  template <class Options>
  void read_weights(Options& options) {
    options.activation = read_activation(config_);
    options.use_bias = config_.flag("use_bias", true);
    options.kernel_initializer = read_initializer("kernel_initializer", Initializer::glorot_uniform);
    options.bias_initializer = read_initializer("bias_initializer", Initializer::zeros);
    options.name = name_;
  }

  template <class Pooling>
  Pooling read_pooling() {
    const Extent pool = config_.extent("pool_size", 2);
    return Pooling(pool, {.strides = config_.extent("strides", pool), .padding = read_padding(config_), .name = name_});
  }

  BatchNormalization read_normalization() {
    config_.ignore({"axis"});  // checked by check_axis, once shapes are known
    expect_initializer("beta_initializer", Initializer::zeros);
    expect_initializer("gamma_initializer", Initializer::ones);
    expect_initializer("moving_mean_initializer", Initializer::zeros);
    expect_initializer("moving_variance_initializer", Initializer::ones);
    config_.ignore({"renorm_momentum"});  // of no effect unless renorm, which is refused
    BatchNormalizationOptions options;
    options.momentum = config_.number("momentum", options.momentum);
    options.epsilon = config_.number("epsilon", options.epsilon);
    options.center = config_.flag("center", true);
    options.scale = config_.flag("scale", true);
    options.name = name_;
    return BatchNormalization(options);
  }

  std::string class_name_;
  std::string where_;
  ConfigReader config_;
  std::string name_;
};

/// BatchNormalization over the last axis: -1, or as Keras 2 writes it [3] for images, batch counted.
void check_axis(const json& layer, const LayerInfo& info, const std::string& source) {
  if (info.class_name != "BatchNormalization") return;
  const ClassConfig described(layer, source);
  ConfigReader config(*described.config, source + ": layer '" + info.name + "' (BatchNormalization)");
  const json* axis = config.find("axis");
  if (axis == nullptr) return;
  if (axis->is_array() && axis->size() == 1) axis = &axis->at(0);
  if (*axis != json(-1) && *axis != json(info.input_shape.rank())) config.refuse("axis");
}

}  // namespace

Sequential sequential_from_json(const std::string& text, const std::string& source) {
  const json document = parse_json(text, source);
  const ClassConfig model(document, source);
  const bool functional = model.class_name == "Functional" || model.class_name == "Model";
  if (!functional && model.class_name != "Sequential") {
    throw DataError(
        source + " describes a " + model.class_name +
        " model, but Lockstep reads Sequential ones, and Functional ones that are a chain of layers: rebuild "
        "it as keras.Sequential and save it again.");
  }
  ConfigReader config(*model.config, source);
  const std::string name = config.text("name", "sequential");
  const json* const entries = config.find("layers");
  if (entries == nullptr || !entries->is_array() || entries->empty()) config.fail("has no list of layers");

  std::vector<const json*> order;
  if (functional) {
    order = chain_of(*entries, config, source);
  } else {
    for (const json& entry : *entries) order.push_back(&entry);
  }

  std::vector<Layer> layers;
  std::vector<const json*> described;  // null for an Input that was not listed
  layers.reserve(order.size() + 1);
  for (const json* entry : order) {
    const ClassConfig layer(*entry, source + ": layer " + std::to_string(layers.size()));
    if (layers.empty() && layer.class_name != "InputLayer") {
      // Keras leaves the Input out where the model was built without one.
      ConfigReader first(*layer.config, source + ": its first layer");
      const bool shape_of_layer = first.find("batch_input_shape") != nullptr;
      if (!shape_of_layer && config.find("build_input_shape") == nullptr) {
        config.fail("does not tell the shape of the input; begin the model with keras.Input and save it again");
      }
      layers.emplace_back(
          Input(shape_of_layer ? first.shape("batch_input_shape", true) : config.shape("build_input_shape", true)));
      described.push_back(nullptr);
    }
    layers.push_back(LayerReader(layer, source, layers.size()).read());
    described.push_back(entry);
  }
  config.expect("trainable", true);
  config.ignore({"dtype", "build_input_shape"});  // every layer has a dtype of its own
  config.finish();

  try {
    Sequential architecture(std::move(layers), name);
    for (std::size_t i = 0; i < described.size(); ++i) {
      if (described[i] != nullptr) check_axis(*described[i], architecture.layers()[i], source);
    }
    return architecture;
  } catch (const UsageError& error) {
    throw DataError(source + " describes a model that cannot be: " + error.what());
  }
}

Sequential Sequential::from_json(const std::string& json) { return sequential_from_json(json); }

}  // namespace lockstep
