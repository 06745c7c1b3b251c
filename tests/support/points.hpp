// A dataset that small models learn quickly: points on two sides of a line.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <vector>

namespace lockstep::testing {

/// Returns points first to first + count - 1.
[[nodiscard]] inline Dataset make_points(int count, int first = 0) {
  std::vector<float> inputs;
  std::vector<std::int32_t> classes;
  for (int i = first; i < first + count; ++i) {
    const float x = static_cast<float>(i % 8) / 8.0F;
    const float y = static_cast<float>(i % 5) / 5.0F;
    inputs.insert(inputs.end(), {x, y});
    classes.push_back(x > y ? 1 : 0);
  }
  return {{2}, inputs, {}, classes, "points"};
}

}  // namespace lockstep::testing
