// A model's architecture: a chain of layers with inferred shapes.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/initializer.hpp>
#include <lockstep/layers/layer.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep {

/// A layer with its name, shapes and parameters.
struct LayerInfo {
  Layer layer;             ///< with completed defaults: a pooling's strides are never 0
  std::string class_name;  ///< "Conv2D"; "InputLayer" for Input, as Keras calls it
  std::string name;        ///< the user's, or Keras' automatic one: "conv2d", "conv2d_1"
  Shape input_shape;
  Shape output_shape;
  std::vector<ParameterInfo> parameters;
};

class Sequential {
 public:
  /// Throws UsageError if a layer cannot follow the previous one; the message names the layer and its input shape.
  Sequential(std::initializer_list<Layer> layers) : Sequential(std::vector<Layer>(layers)) {}
  explicit Sequential(std::vector<Layer> layers, std::string name = "sequential");

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// All layers, beginning with the Input.
  [[nodiscard]] const std::vector<LayerInfo>& layers() const noexcept { return layers_; }

  [[nodiscard]] const Shape& input_shape() const { return layers_.front().output_shape; }
  [[nodiscard]] const Shape& output_shape() const { return layers_.back().output_shape; }

  [[nodiscard]] std::int64_t count_parameters(bool trainable) const noexcept;

  /// The table of Keras' model.summary(), `width` columns wide (Keras: terminal width - 4, at most 88). Throws
  /// UsageError below 20 columns.
  [[nodiscard]] std::string summary(int width = 76) const;

 private:
  std::string name_;
  std::vector<LayerInfo> layers_;
};

}  // namespace lockstep
