// See field_reader.hpp.
#include "checkpoint/keras/field_reader.hpp"

#include "core/join_words.hpp"
#include "core/variant_types.hpp"
#include "layers/activation_functions.hpp"
#include "layers/constraints.hpp"
#include "layers/initializers.hpp"
#include "layers/regularizers.hpp"
#include "optimizers/schedules.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep {

using nlohmann::json;

void FieldReader::batch_shape(Shape& shape) {
  const bool keras3 = config_.find("batch_shape") != nullptr;
  shape = config_.shape(keras3 ? "batch_shape" : "batch_input_shape", true);
}

void FieldReader::read(const std::string& key, std::vector<Steps>& values) {
  const std::vector<double> numbers = config_.numbers(key);
  values.assign(numbers.begin(), numbers.end());
}

/// [null, 1, 1, 8]. With a 1 for the batch, Keras would drop the same elements of all examples.
void FieldReader::noise_shape(const std::string& key, Shape& shape) {
  const json* const found = config_.find(key);
  if (found == nullptr) return;
  if (found->is_array() && !found->empty() && !found->front().is_null()) {
    config_.fail("has " + key + " = " + found->dump() +
                 ", which is one mask for several examples; Lockstep draws one for each: give None for the batch");
  }
  shape = config_.shape(key, true);
}

/// A number for both ends, or one for each.
void FieldReader::read(const std::string& key, Margins1D& value) {
  const Size2D ends = config_.int_pair(key);
  value = {ends.height, ends.width};
}

/// A number for all sides, one for height and one for width, or [[top, bottom], [left, right]].
void FieldReader::read(const std::string& key, Margins2D& value) {
  const json& found = config_.required(key);
  if (!found.is_array() || found.size() != 2 || !found[0].is_array()) {
    const Size2D sides = config_.int_pair(key);
    value = {sides.height, sides.height, sides.width, sides.width};
    return;
  }
  const auto side = [&](std::size_t axis, std::size_t end) {
    const json& pair = found[axis];
    if (!pair.is_array() || pair.size() != 2) config_.fail_unsupported(key);
    return config_.to_integer(pair[end], key);
  };
  value = {side(0, 0), side(0, 1), side(1, 0), side(1, 1)};
}

void FieldReader::read(const std::string& key, Interpolation& value) {
  const std::string text = config_.text(key);
  if (text != "nearest" && text != "bilinear")
    config_.fail_unknown(key, std::array<std::string_view, 2>{"nearest", "bilinear"});
  value = text == "nearest" ? Interpolation::nearest : Interpolation::bilinear;
}

void FieldReader::read(const std::string& key, FanMode& value) {
  const std::string text = config_.text(key);
  for (const auto& [mode, name] : fan_modes) {
    if (name == text) return void(value = mode);
  }
  config_.fail_unsupported(key);
}

void FieldReader::read(const std::string& key, Distribution& value) {
  const std::string text = config_.text(key);
  for (const auto& [distribution, name] : distributions) {
    if (name == text || (distribution == Distribution::truncated_normal && text == "normal")) {
      return void(value = distribution);
    }
  }
  config_.fail_unsupported(key);
}

void FieldReader::read(const std::string& key, Padding& value) {
  const std::string text = config_.text(key);
  std::vector<std::string_view> known;
  for (const Padding padding : {Padding::valid, Padding::same, Padding::causal}) {
    known.push_back(keras_name(padding));
    if (text != known.back()) continue;
    value = padding;
    return;
  }
  config_.fail_unknown(key, known);
}

/// A name, or a function. Keras finds functions under their first name only: a function called "swish" is the user's.
void FieldReader::read(const std::string& key, ActivationFunction& value) {
  const ClassConfig described(config_.required(key), where_ + "'s " + key);
  if (described.form == ConfigForm::object) config_.fail_unsupported(key);
  std::vector<std::string_view> known;
  for (const ActivationFunction function : named_activations()) {
    known.push_back(keras_name(function));
    const std::string_view alias = described.form == ConfigForm::name ? keras_alias(function) : "";
    if (described.class_name != keras_name(function) && (alias.empty() || described.class_name != alias)) continue;
    value = function;
    return;
  }
  config_.fail_unknown(key, known);
}

void FieldReader::read(const std::string& key, Initializer& value) {
  if (initializers_ == Initializers::needed) return read_initializer(key, value);
  const Initializer before = value;
  try {
    read_initializer(key, value);
  } catch (const DataError&) {  // another's, or with options that Lockstep lacks
    value = before;
  }
}

void FieldReader::read_initializer(const std::string& key, Initializer& value) {
  const ClassConfig described(config_.required(key), where_ + "'s " + key);
  if (described.form == ConfigForm::function) config_.fail_unsupported(key);  // Keras' own are classes
  std::vector<std::string_view> known;
  for (const InitializerRow& row : initializer_rows) {
    known.push_back(row.class_name);
    if (described.class_name != row.class_name && described.class_name != row.short_name) continue;
    ConfigReader options(*described.config, where_ + "'s " + key);
    options.ignore({"seed", "dtype"});
    value = row.initializer;
    FieldReader reader(options, where_ + "'s " + key);
    visit_initializer_fields(reader, value);
    options.reject_unread_keys();
    return;
  }
  config_.fail_unknown(key, known);
}

void FieldReader::read(const std::string& key, RandomFactor& value) {
  if (!config_.required(key).is_array()) {
    value = config_.number(key);
    return;
  }
  const std::vector<double> bounds = config_.numbers(key);
  if (bounds.size() != 2) config_.fail_unsupported(key);
  value = {bounds[0], bounds[1]};
}

void FieldReader::read(const std::string& key, Regularizer& value) {
  const std::string where = where_ + "'s " + key;
  const ClassConfig described(config_.required(key), where);
  if (described.form == ConfigForm::function) config_.fail_unsupported(key);  // Keras' own are classes
  std::vector<std::string_view> known;
  for (const RegularizerRow& row : regularizer_rows) {
    known.push_back(row.class_name);
    if (described.class_name != row.class_name && described.class_name != row.short_name) continue;
    ConfigReader options(*described.config, where);
    value = row.defaults;
    if (row.has_l1) value.l1 = options.number("l1", value.l1);
    if (row.has_l2) value.l2 = options.number("l2", value.l2);
    options.reject_unread_keys();
    return;
  }
  config_.fail_unknown(key, known);
}

void FieldReader::read(const std::string& key, Constraint& value) {
  const std::string where = where_ + "'s " + key;
  const ClassConfig described(config_.required(key), where);
  if (described.form == ConfigForm::function) config_.fail_unsupported(key);  // Keras' own are classes
  std::vector<std::string_view> known;
  for (const ConstraintRow& row : constraint_rows) {
    known.push_back(row.class_name);
    if (described.class_name != row.class_name && described.class_name != row.short_name) continue;
    ConfigReader options(*described.config, where);
    value = row.make();
    if (row.has_min) value.min_value = options.number("min_value", value.min_value);
    if (row.has_max) value.max_value = options.number("max_value", value.max_value);
    if (row.has_min) value.rate = options.number("rate", value.rate);
    if (row.has_axis && described.config->contains("axis")) {
      value.axis = options.find("axis") == nullptr ? std::vector<int>() : options.integers("axis");
    }
    options.reject_unread_keys();
    return;
  }
  config_.fail_unknown(key, known);
}

/// A number, or a schedule as an object with a class.
void FieldReader::read(const std::string& key, LearningRate& rate) {
  const json& value = config_.required(key);
  if (!value.is_object()) {
    rate = config_.number(key);
    return;
  }
  const std::string where = where_ + "'s " + key;
  const ClassConfig described(value, where);
  ConfigReader config(*described.config, where + " " + described.class_name);
  bool found = false;
  std::vector<std::string_view> known;
  for_each_alternative<LearningRate::Kind>([&]<typename Schedule>(std::type_identity<Schedule>) {
    if constexpr (!std::is_same_v<Schedule, double>) {
      known.push_back(ScheduleTraits<Schedule>::class_name);
      if (described.class_name != known.back()) return;
      Schedule schedule;
      // PiecewiseConstantDecay has no such field, and computes with whole numbers what it would with others.
      if (const json* const first = config.find("initial_learning_rate");
          first != nullptr && first->is_number_integer())
        config.fail(
            fmt::format("has the whole number {0} as initial_learning_rate, with which Keras computes in whole "
                        "numbers; make it {0}.0",
                        first->dump()));
      FieldReader reader(config, where);
      ScheduleTraits<Schedule>::fields(reader, schedule);
      rate = std::move(schedule);
      found = true;
    }
  });
  if (!found) config.fail("is not one of " + join_words(known) + compile_remedy);
  config.ignore({"name"});
  config.reject_unread_keys();
}

}  // namespace lockstep
