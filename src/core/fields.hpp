// The fields of classes that Keras' files describe, declared once. The traits of layers, optimizers, schedules and
// losses have a function `fields(visit, object)`, which calls the visitor for each key in the order of Keras' files.
// Reader, writer and range checks are visitors.
//
// The calls of `fields`:
//   - visit.required(key, member[, range]): read and written; no default
//   - visit.optional(key, member[, range]): read and written; if absent, the member keeps its default
//   - visit.written_if(condition, key, member[, range]): the same, but written only if the condition holds
//   - visit.constant(key, value): written; if read, it must be this value
//   - visit.expected(key, value): not written; if read, it must be this value
//   - visit.legacy(key, new_key, member): Keras 2's name of the key before it. Keras 3 reads it too, so .h5 files have
//   it
//   - visit.ignored(key): not written; any value may be read
//   - visit.unused(key): written as null; any value may be read
//   - visit.last_axis(key): written as -1; if read, the last axis of the input in any spelling
//   - visit.noise_shape(key, shape): the shape of Dropout's mask, with an unknown batch size; null if it is empty
//   - visit.batch_shape(shape): Input's shape with an unknown batch size
//   - visit.input_type(key, type): Input's dtype; other layers' are their precision, which Architecture keeps
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lockstep {

/// A range of finite numbers. For a field of several numbers, the range of each. Contains neither NaN nor infinity.
struct Interval {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool includes_min = true;
  bool includes_max = true;

  [[nodiscard]] bool contains(double value) const noexcept;
  /// Completes "it must be ...": "at least 0 and below 1", "a finite number".
  [[nodiscard]] std::string to_string() const;
};

inline constexpr Interval any_number{};
inline constexpr Interval not_negative{.min = 0};
inline constexpr Interval positive{.min = 0, .includes_min = false};
inline constexpr Interval at_least_one{.min = 1};
inline constexpr Interval below_one{.min = 0, .max = 1, .includes_max = false};
inline constexpr Interval zero_to_one{.min = 0, .max = 1};

/// Passed instead of a range: the padding may also be causal.
struct OrCausal {};
inline constexpr OrCausal or_causal{};

/// Base of field visitors: ignores all calls that a derived visitor does not override.
struct FieldVisitor {
  static void required(std::string_view /*key*/, const auto& /*value*/, const auto&... /*range*/) {}
  static void optional(std::string_view /*key*/, const auto& /*value*/, const auto&... /*range*/) {}
  static void written_if(bool /*condition*/, std::string_view /*key*/, const auto& /*value*/,
                         const auto&... /*range*/) {}
  static void constant(std::string_view /*key*/, const auto& /*value*/) {}
  static void expected(std::string_view /*key*/, const auto& /*value*/) {}
  static void legacy(std::string_view /*key*/, std::string_view /*new_key*/, const auto& /*value*/) {}
  static void ignored(std::string_view /*key*/) {}
  static void unused(std::string_view /*key*/) {}
  static void last_axis(std::string_view /*key*/) {}
  static void batch_shape(const auto& /*shape*/) {}
  static void input_type(std::string_view /*key*/, const auto& /*type*/) {}
  static void noise_shape(std::string_view /*key*/, const auto& /*shape*/) {}
};

/// Throws UsageError for the first number among an object's fields that is out of its range.
class NumberRangeCheck : public FieldVisitor {
 public:
  /// `owner` is the prefix of field names in errors: "the metric top_k_categorical_accuracy's ".
  explicit NumberRangeCheck(std::string owner) : owner_(std::move(owner)) {}

  void required(std::string_view key, const auto& value, const auto&... range) const { check(key, value, range...); }
  void optional(std::string_view key, const auto& value, const auto&... range) const { check(key, value, range...); }
  void written_if(bool /*condition*/, std::string_view key, const auto& value, const auto&... range) const {
    check(key, value, range...);
  }

 private:
  void check(std::string_view /*key*/, const auto& /*value without a range*/) const {}
  template <typename Value>
  void check(std::string_view key, const Value& value, const Interval& range) const {
    static_assert(std::is_arithmetic_v<Value>);
    require_in_range(key, static_cast<double>(value), range);
  }
  void check(std::string_view key, const std::optional<double>& value, const Interval& range) const {
    if (value) require_in_range(key, *value, range);
  }
  void require_in_range(std::string_view key, double value, const Interval& range) const;

  std::string owner_;
};

}  // namespace lockstep
