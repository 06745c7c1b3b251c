// Reads one JSON object of Keras' making and keeps account: whatever option nobody asked for must be switched off, so
// that a model is never taken for less than it is.
#pragma once

#include <lockstep/nn/layers.hpp>

#include <nlohmann/json_fwd.hpp>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// The object must outlive the reader. Errors are DataError and begin with `where`, e.g. "m.h5: layer 'conv2d'
/// (Conv2D)".
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& object, std::string where);

  /// The value of a key; nullptr if it is absent or null.
  const nlohmann::json* find(const std::string& key);

  /// Values of the wrong type are refused; without a fallback, so is an absent key.
  int integer(const std::string& key, std::optional<int> fallback = {});
  double number(const std::string& key, std::optional<double> fallback = {});
  std::vector<double> numbers(const std::string& key);
  bool flag(const std::string& key, bool fallback);
  std::string text(const std::string& key, const std::optional<std::string>& fallback = {});
  Extent extent(const std::string& key, std::optional<Extent> fallback = {});
  Shape shape(const std::string& key, bool skip_batch);  ///< with `skip_batch` [null, 28, 28] is {28, 28}

  /// Refuses every value but this one (and an absent key).
  void expect(const std::string& key, const nlohmann::json& only);

  /// Keys without a meaning for Lockstep.
  void ignore(std::initializer_list<const char*> keys);

  /// Refuses keys that were not asked for, unless they are null, false or empty: an option switched off.
  void finish() const;

  /// "WHERE has KEY = VALUE, which Lockstep does not support".
  [[noreturn]] void refuse(const std::string& key) const;
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  const nlohmann::json& required(const std::string& key);
  [[nodiscard]] int to_integer(const nlohmann::json& value, const std::string& key) const;

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> seen_;
};

/// Parses text; DataError beginning with `source` where it is not JSON.
[[nodiscard]] nlohmann::json parse_json(const std::string& text, const std::string& source);

/// Keras' {"class_name": ..., "config": {...}} taken apart. A bare name, "relu", is a class without configuration.
struct ClassConfig {
  explicit ClassConfig(const nlohmann::json& value, const std::string& where);
  std::string class_name;
  const nlohmann::json* config;  ///< never null; an empty object for a bare name
};

}  // namespace lockstep
