// The shape of a model's input and the scale of its values.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/callable.hpp>

#include <string>
#include <utility>

namespace lockstep {

/// Keras' `dtype` of an Input. The layers compute in floating point all the same; data that Keras would cut to this
/// type is refused. Bytes that an Input of integers reads are not scaled.
enum class InputType { float32, int32, int64, uint8, boolean };

/// The shape of one example. The first layer of a Sequential model, and a tensor in a Functional one.
struct Input {
  explicit Input(Shape shape_, std::string name_ = {}, InputType dtype_ = InputType::float32)
      : shape(std::move(shape_)), name(std::move(name_)), dtype(dtype_) {}
  LayerIdentity identity;
  Shape shape;
  std::string name;
  InputType dtype;
};

/// y = scale x + offset, anywhere in a model. Before the first weights, it makes the model read bytes as 0 to 255.
/// Without it, and without a Normalization there, a model program divides bytes by 255.
struct Rescaling : CallableLayer<Rescaling> {
  explicit Rescaling(double scale_, double offset_ = 0, std::string name_ = {})
      : scale(scale_), offset(offset_), name(std::move(name_)) {}
  double scale;
  double offset;
  std::string name;
};

}  // namespace lockstep
