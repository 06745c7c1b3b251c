// Builds an OnnxGraph node by node. Keras' tensors have their channels last, ONNX's images have them first. A value
// keeps the order in which it was computed; it is transposed only where an operator needs the other order, and then
// once. So a chain of convolutions, poolings and elementwise functions transposes its image when it begins, and no pair
// of transposes is ever left to cancel.
#pragma once

#include "export/onnx_graph.hpp"

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A tensor of the graph.
struct OnnxValue {
  std::string name;
  Shape shape;                  ///< of one example, as in Keras: channels last
  bool channels_first = false;  ///< (batch, channels, height, width) in memory
  OnnxType type = OnnxType::float32;

  [[nodiscard]] std::int64_t channels() const { return shape[shape.rank() - 1]; }

  /// The axis in ONNX of an axis of the example, counted from 0.
  [[nodiscard]] std::int64_t onnx_axis(std::size_t axis) const;

  /// One number for each axis of ONNX: `batch`, and then the numbers of the example's axes in this value's order.
  template <typename Number>
  [[nodiscard]] std::vector<Number> in_order(Number batch, const std::vector<Number>& of_axes) const {
    std::vector<Number> ordered(of_axes.size() + 1, batch);
    for (std::size_t axis = 0; axis < of_axes.size(); ++axis)
      ordered[static_cast<std::size_t>(onnx_axis(axis))] = of_axes[axis];
    return ordered;
  }
};

/// The axes of (spatial..., in, out) in the order of (out, in, spatial...), and the like.
using AxisOrder = std::vector<std::size_t>;

/// A row-major array with its axes in another order: axis i of the result is axis order[i] of the array.
[[nodiscard]] std::vector<float> permuted(const std::vector<float>& values, const Shape& shape, const AxisOrder& order);

class OnnxBuilder {
 public:
  OnnxBuilder(std::string name, int opset);

  [[nodiscard]] int opset() const noexcept { return graph_.opset; }

  /// The layer whose nodes follow: they and their outputs are named after it.
  void begin_layer(std::string name) { layer_ = std::move(name); }

  /// The names of the model's outputs, which no other value takes.
  void reserve(const std::string& name) { names_.insert(name); }

  OnnxValue add_input(const std::string& name, const Shape& shape, OnnxType type);

  /// Names the value, channels last. A value that has a name already, such as an input, is copied.
  void add_output(const OnnxValue& value, const std::string& name);

  /// Appends an operator whose output has this shape, in the order of `like`.
  OnnxValue add(const std::string& op_type, std::vector<std::string> inputs, const Shape& shape, const OnnxValue& like,
                std::vector<OnnxAttribute> attributes = {});

  /// The same for an elementwise operator on a value, and perhaps constants.
  OnnxValue add(const std::string& op_type, const OnnxValue& input, std::vector<std::string> constants = {},
                std::vector<OnnxAttribute> attributes = {});

  /// The sum, the largest and so on over axes of ONNX, which stay with one element, or disappear.
  OnnxValue reduce(const std::string& op_type, const OnnxValue& input, std::vector<std::int64_t> axes,
                   const Shape& shape, bool keepdims);

  /// The value in this order; of vectors there is only one.
  OnnxValue channels_last(const OnnxValue& value);
  OnnxValue channels_first(const OnnxValue& value);

  OnnxValue cast(const OnnxValue& value, OnnxType type);

  /// The value as ONNX reshapes it: channels last.
  OnnxValue reshape(const OnnxValue& value, const Shape& shape);

  /// Constants, by their names.
  std::string scalar(float value);
  std::string integers(const std::vector<std::int64_t>& values);
  std::string floats(const std::string& what, std::vector<std::int64_t> dims, std::vector<float> values);

  /// One number for each channel of `value`, so that it broadcasts; a single number fits all.
  std::string per_channel(const std::string& what, std::vector<float> values, const OnnxValue& value);

  /// The name of a constant that was made under this key: the weights of a shared layer are stored once.
  template <typename Make>
  std::string shared(const std::string& key, const Make& make) {
    const auto found = shared_.find(key);
    return found != shared_.end() ? found->second : shared_.emplace(key, make()).first->second;
  }

  [[nodiscard]] OnnxGraph finish() { return std::move(graph_); }

 private:
  /// The name, or the first of name_1, name_2 and so on that is free.
  std::string unique(const std::string& name);
  OnnxValue transposed(const OnnxValue& value);

  OnnxGraph graph_;
  std::string layer_;
  std::set<std::string> names_;
  std::map<std::string, std::size_t> next_suffix_;
  std::map<std::string, std::string> shared_;
  std::map<std::string, std::string> transposed_;  ///< the values that exist in both orders, by either name
  std::map<std::string, std::string> renamed_;     ///< the values that became outputs, by their former names
};

}  // namespace lockstep
