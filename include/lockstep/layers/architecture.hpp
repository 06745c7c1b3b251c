// A model's architecture: its layers, and the graph of their calls. Sequential and Functional construct it.
#pragma once

#include <lockstep/core/precision.hpp>
#include <lockstep/core/shape.hpp>
#include <lockstep/layers/initializer.hpp>
#include <lockstep/layers/layer.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

class Tensor;

/// A layer with its name, shapes and parameters. Those of a nested model are those of its layers, in their order, with
/// names like "conv2d/kernel".
struct LayerInfo {
  Layer layer;             ///< with completed defaults: a pooling's strides are never 0
  std::string class_name;  ///< "Conv2D"; "InputLayer" for Input, as Keras calls it
  std::string name;        ///< the user's, or Keras' automatic one: "conv2d", "conv2d_1"
  Shape input_shape;       ///< of its first call's first input; of an Input: its own
  Shape output_shape;      ///< of its first call
  std::vector<ParameterInfo> parameters;
  Precision precision = Precision::float32;  ///< as Keras' dtype policy says; Options::precision overrides it
};

/// One call of a layer, which computes one tensor. A shared layer has several.
struct LayerCall {
  int layer = 0;            ///< index in Architecture::layers()
  std::vector<int> inputs;  ///< the earlier calls whose tensors it reads; none for an Input
  Shape output_shape = {};  ///< Architecture computes it
};

/// What an Architecture is constructed from: layers without shapes, and their calls.
struct LayerGraph {
  std::vector<Layer> layers;     ///< in Keras' order of `model.layers`
  std::vector<LayerCall> calls;  ///< each after the calls that it reads
  std::vector<int> inputs;       ///< calls of Inputs
  std::vector<int> outputs;      ///< calls
};

class Architecture {
 public:
  /// Calls the model like a layer. It becomes a nested model, which shares its weights with the model's other calls.
  /// Throws UsageError if the inputs have other shapes than the model's.
  Tensor operator()(const Tensor& input) const;
  Tensor operator()(std::initializer_list<Tensor> inputs) const;
  Tensor operator()(const std::vector<Tensor>& inputs) const;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Whether the name is Keras' automatic one, "sequential" or "functional".
  [[nodiscard]] bool has_automatic_name() const noexcept { return has_automatic_name_; }

  /// All layers in Keras' order of `model.layers`, Inputs included. Weights have this order in files.
  [[nodiscard]] const std::vector<LayerInfo>& layers() const noexcept { return layers_; }

  /// All calls in topological order: each comes after those that it reads.
  [[nodiscard]] const std::vector<LayerCall>& calls() const noexcept { return calls_; }

  /// The indices in calls() of the model's inputs and outputs.
  [[nodiscard]] const std::vector<int>& inputs() const noexcept { return inputs_; }
  [[nodiscard]] const std::vector<int>& outputs() const noexcept { return outputs_; }

  /// Whether it was made as a Sequential model. Keras' files of such a model list layers without their connections.
  [[nodiscard]] bool is_sequential() const noexcept { return is_sequential_; }

  /// The same model without nested models: their layers stand in their place, with names like "base/conv2d". All
  /// parameters keep their order.
  [[nodiscard]] Architecture flattened() const;

  /// Whether each layer is called once, on the tensor of the layer before it.
  [[nodiscard]] bool is_chain() const noexcept;

  /// The layer that computes an output, and the output's shape, by its index in outputs().
  [[nodiscard]] const LayerInfo& output_layer(std::size_t output) const {
    return layers_[calls_[outputs_[output]].layer];
  }
  [[nodiscard]] const Shape& output_shape(std::size_t output) const { return calls_[outputs_[output]].output_shape; }

  /// The name of an output by its index in outputs(): its layer's, as in Keras. Further outputs of the same layer get a
  /// number, as in "dense_1"; Keras gives all of them one name.
  [[nodiscard]] const std::string& output_name(std::size_t output) const { return output_names_[output]; }

  /// The shape of one example of the first input and of the first output.
  [[nodiscard]] const Shape& input_shape() const { return calls_[inputs_.front()].output_shape; }
  [[nodiscard]] const Shape& output_shape() const { return calls_[outputs_.front()].output_shape; }

  /// The layer and the type of an input, by its index in inputs().
  [[nodiscard]] const LayerInfo& input_layer(std::size_t input = 0) const {
    return layers_[calls_[inputs_[input]].layer];
  }
  [[nodiscard]] InputType input_type(std::size_t input = 0) const {
    return std::get<Input>(input_layer(input).layer).dtype;
  }

  /// As Keras' `model.trainable = ...` and `model.get_layer(name).trainable = ...`: whether training changes the
  /// weights of all layers, or of one. Call it before the model is made. Throws UsageError if no layer has the name.
  void set_trainable(bool trainable);
  void set_trainable(std::string_view layer, bool trainable);

  /// As Keras' `dtype` of all layers but Inputs, or of one: float32 or mixed_bfloat16. Files keep it. Throws UsageError
  /// if no layer has the name.
  void set_precision(Precision precision);
  void set_precision(std::string_view layer, Precision precision);

  [[nodiscard]] std::int64_t count_parameters(bool trainable) const noexcept;

  /// The table of Keras' model.summary(), `width` columns wide (Keras: terminal width - 4, at most 88; with branches
  /// at most 108). Throws UsageError below 20 columns.
  [[nodiscard]] std::string summary(int width = 76) const;

  friend class Sequential;
  friend class Functional;

 private:
  class Flattener;
  Architecture() = default;

  /// Names the layers as Keras does and infers all shapes. Throws UsageError for a layer that cannot read its inputs
  /// and for two layers of one name; the message names the layer.
  Architecture(std::string name, LayerGraph graph, bool is_sequential);

  /// Throws UsageError if no layer has the name.
  [[nodiscard]] LayerInfo& named(std::string_view layer);

  /// Infers the shapes and parameters of all layers from those of the inputs.
  void infer_calls();

  void name_outputs();

  LayerIdentity identity_;
  std::string name_;
  bool has_automatic_name_ = false;
  std::vector<LayerInfo> layers_;
  std::vector<LayerCall> calls_;
  std::vector<int> inputs_;
  std::vector<int> outputs_;
  std::vector<std::string> output_names_;
  bool is_sequential_ = false;
};

}  // namespace lockstep
