// Points on two sides of a line, which small models learn soon.
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <vector>

namespace lockstep::testing {

/// `count` of them, from `first` on.
[[nodiscard]] inline Dataset make_points(int count, int first = 0) {
  Dataset data;
  data.example_shape = {2};
  std::vector<float> inputs;
  std::vector<std::int32_t> classes;
  for (int i = first; i < first + count; ++i) {
    const float x = static_cast<float>(i % 8) / 8.0F;
    const float y = static_cast<float>(i % 5) / 5.0F;
    inputs.insert(inputs.end(), {x, y});
    classes.push_back(x > y ? 1 : 0);
  }
  data.inputs = inputs;
  data.targets = classes;
  data.source = "points";
  return data;
}

}  // namespace lockstep::testing
