// The table of regularizers: Keras' names and defaults, one row each.
#pragma once

#include <lockstep/layers/regularizer.hpp>

#include <array>
#include <string_view>

namespace lockstep {

struct RegularizerRow {
  Regularizer defaults;
  std::string_view class_name;  ///< Keras' name in files
  std::string_view short_name;  ///< Keras' name in programs
  bool has_l1;
  bool has_l2;
};

inline constexpr std::array regularizer_rows{
    RegularizerRow{L1(), "L1", "l1", true, false},
    RegularizerRow{L2(), "L2", "l2", false, true},
    RegularizerRow{L1L2(), "L1L2", "l1_l2", true, true},
};

/// The row of the simplest class that adds the same penalty.
[[nodiscard]] const RegularizerRow& row_of(const Regularizer& regularizer);

}  // namespace lockstep
