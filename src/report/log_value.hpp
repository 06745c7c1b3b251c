// How a loss or a metric is printed.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace lockstep {

/// As Keras prints it: "0.9771", and "1.0808e-07" up to 0.001.
[[nodiscard]] inline std::string log_value(double value) {
  if (std::isnan(value)) return "nan";  // whose sign means nothing
  return std::abs(value) > 1e-3 ? fmt::format("{:.4f}", value) : fmt::format("{:.4e}", value);
}

}  // namespace lockstep
