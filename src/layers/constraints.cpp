// See constraints.hpp.
#include "layers/constraints.hpp"

#include "core/fields.hpp"
#include "layers/named_choice.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>

namespace lockstep {

Constraint::Constraint(const char* name)
    : Constraint(named_choice("constraint", name, constraint_rows, [](const ConstraintRow& row) {
                   return row.short_name;
                 }).make()) {}

const ConstraintRow& row_of(const Constraint& constraint) {
  const auto* row = std::ranges::find(constraint_rows, constraint.kind, &ConstraintRow::kind);
  if (row == constraint_rows.end()) throw InternalError("a constraint has no row; please report this");
  return *row;
}

std::optional<std::string> problem_of(const Constraint& constraint, const Shape& shape) {
  if (constraint.is_none()) return std::nullopt;
  for (const double bound : {constraint.min_value, constraint.max_value}) {
    if (!not_negative.contains(bound))
      return fmt::format("the bound {}, which must be {}", bound, not_negative.to_string());
  }
  if (constraint.min_value > constraint.max_value) {
    return fmt::format("min_value {} above max_value {}", constraint.min_value, constraint.max_value);
  }
  if (!any_number.contains(constraint.rate))
    return fmt::format("the rate {}, which must be {}", constraint.rate, any_number.to_string());
  const auto rank = static_cast<int>(shape.rank());
  std::vector<bool> used(shape.rank());
  for (const int axis : constraint.axis) {
    const int index = axis < 0 ? axis + rank : axis;
    if (index < 0 || index >= rank) return fmt::format("the axis {}, but its shape is {}", axis, shape.to_string());
    if (used[static_cast<std::size_t>(index)]) return fmt::format("the axis {} twice", axis);
    used[static_cast<std::size_t>(index)] = true;
  }
  return std::nullopt;
}

std::vector<bool> norm_axes(const Constraint& constraint, const Shape& shape) {
  std::vector<bool> axes(shape.rank(), constraint.axis.empty());
  const auto rank = static_cast<int>(shape.rank());
  for (const int axis : constraint.axis) axes[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = true;
  return axes;
}

}  // namespace lockstep
