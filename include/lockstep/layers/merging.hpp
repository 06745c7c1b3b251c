// Layers that merge several tensors into one. The elementwise ones broadcast: an axis of size 1 is repeated.
#pragma once

#include <lockstep/layers/callable.hpp>

#include <string>
#include <utility>

namespace lockstep {

/// The sum of its inputs.
struct Add : MergeLayer<Add> {
  explicit Add(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The product of its inputs.
struct Multiply : MergeLayer<Multiply> {
  explicit Multiply(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The mean of its inputs.
struct Average : MergeLayer<Average> {
  explicit Average(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The first input minus the second.
struct Subtract : MergeLayer<Subtract> {
  explicit Subtract(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The largest of its inputs.
struct Maximum : MergeLayer<Maximum> {
  explicit Maximum(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// The smallest of its inputs.
struct Minimum : MergeLayer<Minimum> {
  explicit Minimum(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// Concatenates its inputs along an axis: -1 is the last, 1 the first after the batch.
struct Concatenate : MergeLayer<Concatenate> {
  explicit Concatenate(int axis_ = -1, std::string name_ = {}) : axis(axis_), name(std::move(name_)) {}
  int axis;
  std::string name;
};

/// An axis of each of two tensors: 1 is the first after the batch, -1 the last.
struct DotAxes {
  constexpr DotAxes(int both) : first(both), second(both) {}  // NOLINT(google-explicit-constructor): as Keras reads `1`
  constexpr DotAxes(int first_, int second_) : first(first_), second(second_) {}
  int first;
  int second;
  friend bool operator==(const DotAxes&, const DotAxes&) = default;
};

struct DotOptions {
  bool normalize = false;  ///< divides each vector along the axes by its length first
  std::string name = {};
};

/// Sums the products of two inputs along an axis of each, which have one size. The output has the other axes of the
/// first input, then those of the second, or one element if there are none.
struct Dot : DotOptions, MergeLayer<Dot> {
  explicit Dot(DotAxes axes_, DotOptions options = {}) : DotOptions(std::move(options)), axes(axes_) {}
  DotAxes axes;
};

/// inputs[0] + scale inputs[1]: the residual connection of keras.applications' InceptionResNetV2.
struct CustomScaleLayer : MergeLayer<CustomScaleLayer> {
  explicit CustomScaleLayer(double scale_, std::string name_ = {}) : scale(scale_), name(std::move(name_)) {}
  double scale;
  std::string name;
};

}  // namespace lockstep
