// The table of constraints: Keras' names, defaults and options, one row each.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/constraint.hpp>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ConstraintRow {
  Constraint::Kind kind;
  std::string_view class_name;  ///< Keras' name in files
  std::string_view short_name;  ///< Keras' name in programs
  Constraint (*make)();         ///< with Keras' defaults
  bool has_min;                 ///< and a rate
  bool has_max;
  bool has_axis;
};

inline constexpr std::array constraint_rows{
    ConstraintRow{Constraint::Kind::max_norm, "MaxNorm", "max_norm", [] { return Constraint(MaxNorm()); }, false, true,
                  true},
    ConstraintRow{Constraint::Kind::non_neg, "NonNeg", "non_neg", [] { return Constraint(NonNeg()); }, false, false,
                  false},
    ConstraintRow{Constraint::Kind::unit_norm, "UnitNorm", "unit_norm", [] { return Constraint(UnitNorm()); }, false,
                  false, true},
    ConstraintRow{Constraint::Kind::min_max_norm, "MinMaxNorm", "min_max_norm", [] { return Constraint(MinMaxNorm()); },
                  true, true, true},
};

/// The row of a constraint's kind. Throws InternalError for none.
[[nodiscard]] const ConstraintRow& row_of(const Constraint& constraint);

/// Explains why a variable of this shape cannot have the constraint: "the axis 2, but its shape is (3, 4)". Nothing if
/// it can.
[[nodiscard]] std::optional<std::string> problem_of(const Constraint& constraint, const Shape& shape);

/// The axes of a variable along which norms add up squares, by axis.
[[nodiscard]] std::vector<bool> norm_axes(const Constraint& constraint, const Shape& shape);

}  // namespace lockstep
