// Reads one JSON object that Keras wrote and records which keys were read. All other keys must be switched off, so that
// no option of a model is dropped silently.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/geometry.hpp>

#include <nlohmann/json_fwd.hpp>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The object must outlive the reader. Errors are DataError and begin with `where`, e.g. "m.h5: layer 'conv2d'
/// (Conv2D)".
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& object, std::string where);

  /// The value of a key; nullptr if it is absent or null.
  const nlohmann::json* find(const std::string& key);

  /// The value of a key; refuses a missing one.
  const nlohmann::json& required(const std::string& key);

  /// These refuse values of the wrong type, and without a fallback a missing key.
  int integer(const std::string& key, std::optional<int> fallback = {});
  double number(const std::string& key, std::optional<double> fallback = {});
  std::vector<double> numbers(const std::string& key);
  std::vector<int> integers(const std::string& key);  ///< a number alone is a list of one
  bool boolean(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::optional<std::string>& fallback = {});
  std::string dtype(const std::string& key);   ///< of a name or of the policy around it; "float32" if it is absent
  int single_integer(const std::string& key);  ///< also [3]
  Size2D int_pair(const std::string& key, std::optional<Size2D> fallback = {});
  Shape shape(const std::string& key,
              bool skip_batch);  ///< with `skip_batch` [null, 28, 28] and [8, 28, 28] are {28, 28}

  /// Throws DataError for a null. The key may be absent.
  void refuse_null(const std::string& key) const;
  /// Throws DataError unless the key has this value or is absent.
  void expect(const std::string& key, const nlohmann::json& only);

  [[nodiscard]] bool was_read(const std::string& key) const { return seen_.contains(key); }

  /// Accepts any value of keys that Lockstep does not need.
  void ignore(std::initializer_list<const char*> keys);

  /// True for null, false and empty values: an option that is not in use.
  [[nodiscard]] static bool is_switched_off(const nlohmann::json& value);

  /// Refuses keys that were not read, unless they are switched off.
  void reject_unread_keys() const;

  /// "WHERE has KEY = VALUE, which Lockstep does not support", and what to do.
  [[noreturn]] void fail_unsupported(const std::string& key) const;
  /// The same of a name: "WHERE has KEY = VALUE, but Lockstep supports KNOWN".
  [[noreturn]] void fail_unknown(const std::string& key, std::span<const std::string_view> known) const;
  [[noreturn]] void fail(const std::string& problem) const;

  /// The value as an integer; refuses `key` if it is none.
  [[nodiscard]] int to_integer(const nlohmann::json& value, const std::string& key) const;

 private:
  /// "has KEY = VALUE".
  [[nodiscard]] std::string describe(const std::string& key) const;

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> seen_;
};

/// Parses text. Throws DataError, whose message begins with `source`, if it is not JSON.
[[nodiscard]] nlohmann::json parse_json(const std::string& text, const std::string& source);

/// How a file describes an object.
enum class ConfigForm {
  name,      ///< "mse": what the user passed to Keras, or in .h5 files a function
  function,  ///< {"class_name": "function", "config": "mean_squared_error"}
  object,    ///< {"class_name": "MeanSquaredError", "config": {...}}
};

/// A class of Keras' own, or one of its functions. Refuses what another module defines, even under a name of Keras.
struct ClassConfig {
  explicit ClassConfig(const nlohmann::json& value, const std::string& where);
  ConfigForm form = ConfigForm::object;
  std::string class_name;        ///< the name of the class or function
  const nlohmann::json* config;  ///< of an object; otherwise an empty object
};

}  // namespace lockstep
