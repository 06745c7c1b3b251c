// What the weights of a layer must satisfy after each update.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

/// Changes a variable after each update of the optimizer, as Keras' constraints do. Weights that are not trained stay.
/// A norm is the square root of the sum of squares along `axis`, which counts from 0, or from -1 backward; without axes
/// it is that of the whole variable. Make one with MaxNorm(), NonNeg(), UnitNorm() or MinMaxNorm(), or by Keras' name:
/// "non_neg".
struct Constraint {
  enum class Kind : std::uint8_t { none, max_norm, non_neg, unit_norm, min_max_norm };

  Constraint() = default;
  Constraint(const char* name);  // NOLINT(google-explicit-constructor): as Keras reads "non_neg"
  Constraint(Kind kind_, double min_value_, double max_value_, double rate_, std::vector<int> axis_)
      : kind(kind_), min_value(min_value_), max_value(max_value_), rate(rate_), axis(std::move(axis_)) {}

  Kind kind = Kind::none;
  double min_value = 0;
  double max_value = 1;
  double rate = 1;  ///< how much of the way from a norm to its bound one step goes
  std::vector<int> axis = {0};

  [[nodiscard]] bool is_none() const noexcept { return kind == Kind::none; }
  friend bool operator==(const Constraint&, const Constraint&) = default;
};

/// Keras' constraints: Dense(10, {.kernel_constraint = MaxNorm(3)}).
struct MaxNorm : Constraint {
  explicit MaxNorm(double max_value_ = 2, std::vector<int> axis_ = {0})
      : Constraint(Kind::max_norm, 0, max_value_, 1, std::move(axis_)) {}
};
struct NonNeg : Constraint {
  NonNeg() : Constraint(Kind::non_neg, 0, 1, 1, {0}) {}
};
struct UnitNorm : Constraint {
  explicit UnitNorm(std::vector<int> axis_ = {0}) : Constraint(Kind::unit_norm, 0, 1, 1, std::move(axis_)) {}
};
struct MinMaxNorm : Constraint {
  explicit MinMaxNorm(double min_value_ = 0, double max_value_ = 1, double rate_ = 1, std::vector<int> axis_ = {0})
      : Constraint(Kind::min_max_norm, min_value_, max_value_, rate_, std::move(axis_)) {}
};

}  // namespace lockstep
