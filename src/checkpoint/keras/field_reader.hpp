// Reads the fields of layers, optimizers, schedules and losses from Keras' configurations.
#pragma once

#include "checkpoint/keras/config_reader.hpp"
#include "core/enum_names.hpp"
#include "core/fields.hpp"

#include <lockstep/layers/activation.hpp>
#include <lockstep/layers/augmentation.hpp>
#include <lockstep/layers/geometry.hpp>
#include <lockstep/layers/initializer.hpp>
#include <lockstep/layers/merging.hpp>
#include <lockstep/optimizers/learning_rate.hpp>

#include <nlohmann/json.hpp>
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// Ends the refusal of something that a model was compiled with.
inline constexpr const char* compile_remedy =
    "; compile the model with one that Lockstep has, or save it before model.compile()";

/// Whether an initializer that Lockstep lacks is refused, or left out because the weights are in the file.
enum class Initializers : std::uint8_t { needed, optional };

/// The visitor of fields (core/fields.hpp) that sets them.
class FieldReader {
 public:
  /// `where`: the name of the object that `config` reads, for messages.
  FieldReader(ConfigReader& config, std::string where, Initializers initializers = Initializers::needed)
      : config_(config), where_(std::move(where)), initializers_(initializers) {}

  /// For objects that Keras itself gives their defaults where a number is null: metrics.
  void take_null() { takes_null_ = true; }

  void required(const std::string& key, auto& value, const auto&... /*range*/) {
    (void)config_.required(key);
    read(key, value);
  }
  template <typename Value>
  void optional(const std::string& key, Value& value, const auto&... range) {
    if (config_.find(key) != nullptr) {
      read(key, value);
      (require_size(key, value, range), ...);
    } else if constexpr (std::is_arithmetic_v<Value>) {
      if (!takes_null_ && value != Value()) config_.refuse_null(key);  // otherwise it means what the default means
    }
  }
  void written_if(bool /*condition*/, const std::string& key, auto& value, const auto&... /*range*/) {
    optional(key, value);
  }
  void constant(const std::string& key, std::same_as<Initializer> auto only) {
    Initializer found = only;
    optional(key, found);
    if (found != only && initializers_ == Initializers::needed) config_.fail_unsupported(key);
  }
  void constant(const std::string& key, const nlohmann::json& only) {
    if (!ConfigReader::is_switched_off(only)) config_.expect(key, only);  // otherwise reject_unread_keys() decides
  }
  void expected(const std::string& key, const nlohmann::json& only) { config_.expect(key, only); }
  void legacy(const std::string& key, const char* /*new_key*/, auto& value) { optional(key, value); }
  void ignored(const std::string& key) { config_.ignore({key.c_str()}); }
  void unused(const std::string& key) { ignored(key); }
  void last_axis(const std::string& key) { ignored(key); }  // checked once shapes are known
  void batch_shape(Shape& shape);
  void noise_shape(const std::string& key, Shape& shape);
  template <NamedEnum Type>
  void input_type(const std::string& key, Type& type) {
    type = enum_of<Type>(config_.dtype(key)).value_or(type);  // read_precision() refuses others
  }

 private:
  /// Absent, an extent of 0 may stand for a default.
  void require_size(const std::string& /*key*/, const auto& /*value*/, const auto& /*range*/) {}
  void require_size(const std::string& key, const Size1D& value, const Interval& range) {
    if (!range.contains(value.length)) config_.fail_unsupported(key);
  }
  void require_size(const std::string& key, const Size2D& value, const Interval& range) {
    if (!range.contains(value.height) || !range.contains(value.width)) config_.fail_unsupported(key);
  }

  void read(const std::string& key, int& value) { value = config_.integer(key); }
  void read(const std::string& key, double& value) { value = config_.number(key); }
  void read(const std::string& key, bool& value) { value = config_.boolean(key, value); }
  void read(const std::string& key, Size2D& value) { value = config_.int_pair(key); }
  void read(const std::string& key, RandomFactor& value);
  void read(const std::string& key, std::optional<RandomFactor>& value) { read(key, value.emplace(0)); }
  void read(const std::string& key, DotAxes& value) {
    const Size2D axes = config_.int_pair(key);
    value = {axes.height, axes.width};
  }
  void read(const std::string& key, Size1D& value) { value = config_.single_integer(key); }
  void read(const std::string& key, Shape& value) { value = config_.shape(key, false); }
  void read(const std::string& key, Steps& value) { value = config_.number(key); }
  void read(const std::string& key, std::optional<double>& value) { value = config_.number(key); }
  void read(const std::string& key, std::vector<double>& values) { values = config_.numbers(key); }
  void read(const std::string& key, std::vector<Steps>& values);
  void read(const std::string& key, std::vector<int>& values) { values = config_.integers(key); }
  void read(const std::string& key, Margins1D& value);
  void read(const std::string& key, Margins2D& value);
  void read(const std::string& key, Interpolation& value);
  void read(const std::string& key, FanMode& value);
  void read(const std::string& key, Distribution& value);
  template <NamedEnum Enum>
  void read(const std::string& key, Enum& value) {
    const std::optional<Enum> found = enum_of<Enum>(config_.text(key));
    if (!found) config_.fail_unknown(key, enum_names<Enum>());
    value = *found;
  }
  void read(const std::string& key, Padding& value);
  void read(const std::string& key, ActivationFunction& value);
  void read(const std::string& key, Initializer& value);
  void read_initializer(const std::string& key, Initializer& value);
  void read(const std::string& key, Regularizer& value);
  void read(const std::string& key, Constraint& value);
  void read(const std::string& key, LearningRate& rate);

  ConfigReader& config_;
  std::string where_;
  Initializers initializers_;
  bool takes_null_ = false;
};

}  // namespace lockstep
