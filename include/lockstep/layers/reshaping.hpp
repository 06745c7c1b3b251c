// Layers that change the shape of their input.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/callable.hpp>

#include <string>
#include <utility>

namespace lockstep {

/// Reshapes each example in row-major order. One dimension may be -1: it is computed from the number of elements.
struct Reshape : CallableLayer<Reshape> {
  explicit Reshape(Shape target_shape_, std::string name_ = {})
      : target_shape(std::move(target_shape_)), name(std::move(name_)) {}
  Shape target_shape;
  std::string name;
};

/// Flattens each example to a vector.
struct Flatten : CallableLayer<Flatten> {
  explicit Flatten(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

}  // namespace lockstep
