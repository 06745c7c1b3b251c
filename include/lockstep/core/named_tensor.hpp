// A named array: a weight, or an array of the optimizer's or a callback's state.
#pragma once

#include <lockstep/core/shape.hpp>

#include <string>
#include <vector>

namespace lockstep {

/// Row-major, in Keras' layout (convolutions HWIO, Dense [in, out]): {"conv2d/kernel", {3, 3, 1, 32}, ...}.
struct NamedTensor {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

}  // namespace lockstep
