// See config_reader.hpp.
#include "checkpoint/keras/config_reader.hpp"

#include "core/join_words.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

/// Formats a value for a message: the class of an object of Keras, else in ASCII, at most 80 characters.
std::string print(const json& value) {
  if (const auto name = value.is_object() ? value.find("class_name") : value.end();
      value.is_object() && name != value.end() && name->is_string()) {
    const auto config = value.find("config");
    const bool is_named = config != value.end() && config->is_object() && config->contains("name");
    return print(*name) + (is_named ? " " + print(config->at("name")) : "");
  }
  constexpr std::size_t max_size = 80;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > max_size) text = text.substr(0, max_size - 3) + "...";
  return text;
}

}  // namespace

ConfigReader::ConfigReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    fail("is described by " + print(object) + ", but a JSON object is expected; save the model again");
}

const json* ConfigReader::find(const std::string& key) {
  seen_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const json& ConfigReader::required(const std::string& key) {
  const json* const value = find(key);
  if (value == nullptr && object_.contains(key)) fail_unsupported(key);
  if (value == nullptr)
    fail("lacks the key '" + key +
         "', and Lockstep does not compute what Keras does without it; give it a value and save the model again");
  return *value;
}

int ConfigReader::to_integer(const json& value, const std::string& key) const {
  if (!value.is_number_integer()) fail_unsupported(key);
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<int>::max()}
                        : value.get<std::int64_t>() >= std::int64_t{std::numeric_limits<int>::min()};
  if (!fits) fail_unsupported(key);
  return value.get<int>();
}

int ConfigReader::integer(const std::string& key, std::optional<int> fallback) {
  const json* const value = find(key);
  if (value == nullptr && fallback) return *fallback;
  return to_integer(required(key), key);
}

double ConfigReader::number(const std::string& key, std::optional<double> fallback) {
  const json* const value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (!required(key).is_number()) fail_unsupported(key);
  return required(key).get<double>();
}

std::vector<double> ConfigReader::numbers(const std::string& key) {
  const json& value = required(key);
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), [](const json& one) { return one.is_number(); })) {
    fail_unsupported(key);
  }
  return value.get<std::vector<double>>();
}

std::vector<int> ConfigReader::integers(const std::string& key) {
  const json& value = required(key);
  if (!value.is_array()) return {to_integer(value, key)};
  std::vector<int> all;
  for (const json& one : value) all.push_back(to_integer(one, key));
  return all;
}

bool ConfigReader::boolean(const std::string& key, bool fallback) {
  const json* const value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail_unsupported(key);
  return value->get<bool>();
}

std::string ConfigReader::text(const std::string& key, const std::optional<std::string>& fallback) {
  const json* const value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (!required(key).is_string()) fail_unsupported(key);
  return required(key).get<std::string>();
}

int ConfigReader::single_integer(const std::string& key) {
  const json& value = required(key);
  if (value.is_array() && value.size() != 1) fail_unsupported(key);
  return to_integer(value.is_array() ? value[0] : value, key);
}

Size2D ConfigReader::int_pair(const std::string& key, std::optional<Size2D> fallback) {
  const json* const found = find(key);
  if (found == nullptr && fallback) return *fallback;
  const json& value = required(key);
  if (!value.is_array()) return to_integer(value, key);
  if (value.size() != 2) fail_unsupported(key);
  return {to_integer(value[0], key), to_integer(value[1], key)};
}

Shape ConfigReader::shape(const std::string& key, bool skip_batch) {
  const json& value = required(key);
  if (!value.is_array()) fail_unsupported(key);
  if (skip_batch && (value.empty() || !(value[0].is_null() || value[0].is_number_unsigned()))) fail_unsupported(key);
  std::vector<std::int64_t> extents;
  for (std::size_t axis = skip_batch ? 1 : 0; axis < value.size(); ++axis) {
    if (skip_batch && value[axis].is_null()) {
      fail(
          fmt::format("has {} = {}, which leaves sizes open; Lockstep needs all but the batch's, as in "
                      "(None, 224, 224, 3)",
                      key, print(value)));
    }
    extents.push_back(to_integer(value[axis], key));
  }
  return Shape(std::move(extents));
}

void ConfigReader::expect(const std::string& key, const json& only) {
  const json* const value = find(key);
  if (value != nullptr && *value != only) fail_unsupported(key);
}

void ConfigReader::refuse_null(const std::string& key) const {
  if (const auto found = object_.find(key); found != object_.end() && found->is_null()) fail_unsupported(key);
}

std::string ConfigReader::dtype(const std::string& key) {
  const json* value = find(key);
  if (value == nullptr) return "float32";
  if (value->is_object()) {
    const auto policy = value->find("config");
    if (policy == value->end() || !policy->is_object() || !policy->contains("name")) fail_unsupported(key);
    value = &policy->at("name");
  }
  if (!value->is_string()) fail_unsupported(key);
  return value->get<std::string>();
}

void ConfigReader::ignore(std::initializer_list<const char*> keys) {
  for (const char* key : keys) seen_.insert(key);
}

bool ConfigReader::is_switched_off(const json& value) {
  return value.is_null() || value == json(false) || ((value.is_structured() || value.is_string()) && value.empty());
}

void ConfigReader::reject_unread_keys() const {
  for (const auto& [key, value] : object_.items()) {
    if (!seen_.contains(key) && !is_switched_off(value)) fail_unsupported(key);
  }
}

std::string ConfigReader::describe(const std::string& key) const {
  const json& value = object_.at(key);
  const bool is_function = value.is_object() && value.value("class_name", json()) == "function";
  return fmt::format("has {} = {}", key,
                     is_function ? "the function " + print(value.value("config", json())) : print(value));
}

void ConfigReader::fail_unsupported(const std::string& key) const {
  fail(describe(key) +
       ", which Lockstep does not support; build the model with another value or without it, or use lockstep.fit, "
       "which trains models that Keras 3 loads");
}

void ConfigReader::fail_unknown(const std::string& key, std::span<const std::string_view> known) const {
  fail(describe(key) + ", but Lockstep supports " + join_words(known) +
       "; build the model with one of them or without it, or use lockstep.fit, which trains models that Keras 3 loads");
}

void ConfigReader::fail(const std::string& problem) const { throw DataError(fmt::format("{} {}", where_, problem)); }

json parse_json(const std::string& text, const std::string& source) {
  // Comparing and printing values recurses once per level, so a limit protects the stack.
  constexpr int max_depth = 64;
  const auto limit_depth = [&source](int depth, json::parse_event_t, const json&) {
    if (depth > max_depth) {
      throw DataError(fmt::format("{} nests JSON too deeply to be a model; the file is damaged", source));
    }
    return true;
  };
  try {
    return json::parse(text, limit_depth);
  } catch (const json::parse_error& error) {
    // Python writes such numbers. The error is at or within the word.
    const std::size_t begin = text.find_last_of(": ,[", std::min<std::size_t>(error.byte, text.size())) + 1;
    for (const char* const number : {"NaN", "Infinity", "-Infinity"}) {
      if (text.compare(begin, std::string(number).size(), number) != 0) continue;
      const std::size_t key_end = text.rfind('"', begin);
      const std::size_t key =
          key_end == std::string::npos || key_end == 0 ? std::string::npos : text.rfind('"', key_end - 1);
      throw DataError(fmt::format("{} has the number {}{}; build or compile the model with finite numbers", source,
                                  number,
                                  key == std::string::npos ? "" : " as " + text.substr(key + 1, key_end - key - 1)));
    }
    throw DataError(fmt::format("{} is not JSON from byte {} on; the file is damaged", source, error.byte));
  } catch (const json::exception&) {
    throw DataError(fmt::format("{} holds a number that is out of range; the file is damaged", source));
  }
}

ClassConfig::ClassConfig(const json& value, const std::string& where) {
  static const json nothing = json::object();
  config = &nothing;
  if (value.is_string()) {
    form = ConfigForm::name;
    class_name = value.get<std::string>();
    return;
  }
  ConfigReader reader(value, where);
  class_name = reader.text("class_name");
  if (const json* found = reader.find("config")) config = found;
  if (class_name == "function" && config->is_string()) {
    form = ConfigForm::function;
    class_name = config->get<std::string>();
    config = &nothing;
  }
  if (!value.contains("module")) return;  // .h5 files do not say whose class it is
  const std::string module = reader.text("module", "");
  const std::string registered = reader.text("registered_name", class_name);
  // tf_keras registers even its own optimizers as "Custom>Adam".
  const bool has_package = registered.find('>') != std::string::npos && registered != "Custom>" + class_name;
  const bool is_of_keras = module == "keras" || module.starts_with("keras.") || module.starts_with("tf_keras.");
  if (!has_package && (is_of_keras || (module == "builtins" && form == ConfigForm::function))) return;
  const json name = config->is_object() ? config->value("name", json()) : json();
  reader.fail(
      fmt::format("is {}the class {} of {}, but Lockstep has Keras' own classes only; build the model with those",
                  name.is_string() ? "'" + name.get<std::string>() + "', of " : "", registered,
                  module.empty() ? "your program" : "module " + module));
}

}  // namespace lockstep
