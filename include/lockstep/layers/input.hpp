// The shape of a model's input and the scale of its values.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/callable.hpp>

#include <string>
#include <utility>

namespace lockstep {

/// The shape of one example. The first layer of a Sequential model, and a tensor in a Functional one.
struct Input {
  explicit Input(Shape shape_, std::string name_ = {}) : shape(std::move(shape_)), name(std::move(name_)) {}
  LayerIdentity identity;
  Shape shape;
  std::string name;
};

/// y = scale x + offset. Must directly follow the Input, except for a Reshape between them. A model with a Rescaling
/// layer reads byte inputs as 0 to 255; without one, bytes are divided by 255.
struct Rescaling : CallableLayer<Rescaling> {
  explicit Rescaling(double scale_, double offset_ = 0, std::string name_ = {})
      : scale(scale_), offset(offset_), name(std::move(name_)) {}
  double scale;
  double offset;
  std::string name;
};

}  // namespace lockstep
