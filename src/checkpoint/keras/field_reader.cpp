// See field_reader.hpp.
#include "checkpoint/keras/field_reader.hpp"

#include "core/join_words.hpp"
#include "core/variant_types.hpp"
#include "layers/activation_functions.hpp"
#include "layers/initializers.hpp"
#include "optimizers/schedules.hpp"

#include <string_view>
#include <type_traits>

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

void FieldReader::read(const std::string& key, Padding& value) {
  const std::string text = config_.text(key);
  for (const Padding padding : {Padding::valid, Padding::same, Padding::causal}) {
    if (text != keras_name(padding)) continue;
    value = padding;
    return;
  }
  config_.fail_unsupported(key);
}

void FieldReader::read(const std::string& key, ActivationFunction& value) {
  const json* name = &config_.required(key);
  // Keras 3 also writes a function as {"class_name": "function", "config": "relu"}.
  if (name->is_object() && name->contains("config") && name->at("config").is_string()) name = &name->at("config");
  for (const ActivationFunction function : named_activations()) {
    if (*name != json(keras_name(function))) continue;
    value = function;
    return;
  }
  config_.fail_unsupported(key);
}

void FieldReader::read(const std::string& key, Initializer& value) {
  const ClassConfig described(config_.required(key), where_ + "'s " + key);
  for (const InitializerRow& row : initializer_rows) {
    if (described.class_name != row.class_name && described.class_name != row.short_name) continue;
    ConfigReader options(*described.config, where_ + "'s " + key);
    options.ignore({"seed", "dtype"});
    options.reject_unread_keys();
    value = row.initializer;
    return;
  }
  config_.fail_unsupported(key);
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
