// Writes the fields of layers, optimizers, schedules and losses as Keras' configurations.
#pragma once

#include "core/enum_names.hpp"
#include "core/fields.hpp"

#include <lockstep/layers/activation.hpp>
#include <lockstep/layers/augmentation.hpp>
#include <lockstep/layers/constraint.hpp>
#include <lockstep/layers/geometry.hpp>
#include <lockstep/layers/initializer.hpp>
#include <lockstep/layers/merging.hpp>
#include <lockstep/layers/regularizer.hpp>
#include <lockstep/optimizers/learning_rate.hpp>

#include <nlohmann/json.hpp>
#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

/// The visitor of fields (core/fields.hpp) that adds them to a configuration.
class FieldWriter : public FieldVisitor {
 public:
  using Json = nlohmann::ordered_json;

  explicit FieldWriter(Json& config) : config_(config) {}

  void required(const char* key, const auto& value, const auto&... /*range*/) const { config_[key] = to_json(value); }
  void optional(const char* key, const auto& value, const auto&... /*range*/) const { config_[key] = to_json(value); }
  void optional(const char* key, const std::optional<double>& value, const Interval& /*range*/) const {
    if (value) config_[key] = *value;
  }
  void optional(const char* key, const Regularizer& value) const {
    if (!value.is_none()) config_[key] = to_json(value);
  }
  void optional(const char* key, const std::optional<RandomFactor>& value) const {
    if (value) config_[key] = to_json(*value);
  }
  void optional(const char* key, const Constraint& value) const {
    if (!value.is_none()) config_[key] = to_json(value);
  }
  void written_if(bool condition, const char* key, const auto& value, const auto&... /*range*/) const {
    if (condition) config_[key] = to_json(value);
  }
  void constant(const char* key, const auto& value) const { config_[key] = to_json(value); }
  void input_type(const char* key, const auto& type) const {
    if (type != std::remove_cvref_t<decltype(type)>{}) config_[key] = enum_name(type);
  }
  void legacy(const char* key, const char* new_key, const auto& value) const {
    config_.erase(new_key);
    config_[key] = to_json(value);
  }
  void unused(const char* key) const { config_[key] = nullptr; }
  void last_axis(const char* key) const { config_[key] = -1; }
  void batch_shape(const Shape& shape) const;
  void noise_shape(const char* key, const Shape& shape) const;

 private:
  static Json to_json(int value) { return value; }
  static Json to_json(double value) { return value; }
  static Json to_json(bool value) { return value; }
  static Json to_json(const char* value) { return value; }
  static Json to_json(std::nullptr_t) { return nullptr; }
  static Json to_json(const std::vector<double>& values) { return values; }
  static Json to_json(Size2D extent) { return Json::array({extent.height, extent.width}); }
  static Json to_json(Size1D extent) { return Json::array({extent.length}); }
  static Json to_json(const std::vector<int>& values) { return values.empty() ? Json() : Json(values); }  // None
  static Json to_json(const RandomFactor& factor) { return Json::array({factor.lower, factor.upper}); }
  static Json to_json(DotAxes axes) {
    return axes.first == axes.second ? Json(axes.first) : Json::array({axes.first, axes.second});
  }
  static Json to_json(Margins1D ends) { return Json::array({ends.before, ends.after}); }
  static Json to_json(Margins2D sides) {
    return Json::array({Json::array({sides.top, sides.bottom}), Json::array({sides.left, sides.right})});
  }
  static Json to_json(Interpolation interpolation) {
    return interpolation == Interpolation::nearest ? "nearest" : "bilinear";
  }
  static Json to_json(FanMode mode);
  static Json to_json(Distribution distribution);
  static Json to_json(Padding padding) { return keras_name(padding); }
  static Json to_json(ActivationFunction function) { return keras_name(function); }
  template <NamedEnum Enum>
  static Json to_json(Enum value) {
    return enum_name(value);
  }
  static Json to_json(const Shape& shape) { return Json(shape.extents()); }
  static Json to_json(Steps steps);
  static Json to_json(const std::vector<Steps>& values);
  static Json to_json(Initializer initializer);
  static Json to_json(const Regularizer& regularizer);
  static Json to_json(const Constraint& constraint);
  static Json to_json(const LearningRate& rate);

  Json& config_;
};

}  // namespace lockstep
