// A chain of layers with every shape worked out: what a model is, before anything runs it.
#pragma once

#include <lockstep/nn/layers.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep {

/// One variable of a layer, in Keras' order: trainable ones first (kernel, bias; gamma, beta), then the others
/// (moving_mean, moving_variance).
struct ParameterInfo {
  std::string name;  ///< "kernel"
  Shape shape;       ///< Keras' layout
  Initializer initializer;
  bool trainable = true;
};

/// A layer in its place.
struct LayerInfo {
  Layer layer;             ///< as given, but a pooling's strides are never 0
  std::string class_name;  ///< "Conv2D"; "InputLayer" for Input, as Keras calls it
  std::string name;        ///< "conv2d", "conv2d_1": Keras' automatic names, or the one given
  Shape input_shape;
  Shape output_shape;
  std::vector<ParameterInfo> parameters;
};

class Sequential {
 public:
  /// Throws UsageError where a layer cannot follow the one before it (names the layer, expected and found shapes).
  Sequential(std::initializer_list<Layer> layers) : Sequential(std::vector<Layer>(layers)) {}
  explicit Sequential(std::vector<Layer> layers, std::string name = "sequential");

  /// What Keras' model.to_json() gives: of a Sequential model, or of a Functional one whose layers are a chain. Throws
  /// DataError for text that is no such description, and for what Lockstep lacks, by its name.
  [[nodiscard]] static Sequential from_json(const std::string& json);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// All layers, Input included as the first.
  [[nodiscard]] const std::vector<LayerInfo>& layers() const noexcept { return layers_; }

  [[nodiscard]] const Shape& input_shape() const { return layers_.front().output_shape; }
  [[nodiscard]] const Shape& output_shape() const { return layers_.back().output_shape; }

  [[nodiscard]] std::int64_t count_parameters(bool trainable) const noexcept;

  /// The table of Keras' model.summary(), `width` columns wide (Keras: terminal width - 4, at most 88).
  [[nodiscard]] std::string summary(int width = 76) const;

 private:
  std::string name_;
  std::vector<LayerInfo> layers_;
};

/// The initial value of parameter number `index` (counted over the whole model), a function of (seed, index) alone.
/// `values` has shape.elements() elements, Keras' layout. Formulas: Keras' random_initializers (Glorot 2010, He 2015).
void initialize(const ParameterInfo& parameter, std::uint64_t seed, std::uint64_t index, std::vector<float>& values);

}  // namespace lockstep
