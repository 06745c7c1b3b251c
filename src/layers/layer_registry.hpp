// The traits of all layers, queried for any layer.
#pragma once

#include "layers/activation.hpp"
#include "layers/augmentation.hpp"
#include "layers/convolution.hpp"
#include "layers/dense.hpp"
#include "layers/embedding.hpp"
#include "layers/input.hpp"
#include "layers/merging.hpp"
#include "layers/nested_model.hpp"
#include "layers/normalization.hpp"
#include "layers/pooling.hpp"
#include "layers/regularization.hpp"
#include "layers/reshaping.hpp"

#include <lockstep/layers/layer.hpp>

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A layer of type L before its fields are read.
template <typename L>
[[nodiscard]] L blank_layer() {
  if constexpr (std::default_initializable<L>) {
    return L();
  } else {
    return LayerTraits<L>::blank();
  }
}

/// Keras' classes in the order of the variant.
[[nodiscard]] const std::vector<std::string_view>& layer_class_names();

/// Keras' class of a layer: "InputLayer", "Conv2D".
[[nodiscard]] std::string_view class_name_of(const Layer& layer);

/// The Python module of a class: "keras.layers", or that of a model of keras.applications which has the layer to
/// itself.
[[nodiscard]] std::string_view module_of(std::string_view class_name);

/// Keras' automatic name: "MaxPooling2D" becomes "max_pooling2d", "LeakyReLU" "leaky_re_lu".
[[nodiscard]] std::string to_snake_case(std::string_view class_name);

/// The name that the layer was given; empty: Keras' automatic one.
[[nodiscard]] const std::string& name_of(const Layer& layer);

/// Whether training changes the layer's weights; true for an Input.
[[nodiscard]] bool is_trainable(const Layer& layer);
void set_trainable(Layer& layer, bool trainable);

/// Whether the constructor of Keras' class has the argument `trainable`.
[[nodiscard]] bool takes_trainable(const Layer& layer);
[[nodiscard]] bool reads_raw_numbers(const Layer& layer);
[[nodiscard]] bool takes_integers(const Layer& layer);
[[nodiscard]] bool keeps_numbers(const Layer& layer);

[[nodiscard]] ReturnsInput returns_input(const Layer& layer);

[[nodiscard]] ElementOrder element_order_of(const Layer& layer);

/// The penalty that each call of the layer adds to the loss for its output.
[[nodiscard]] Regularizer activity_regularizer_of(const Layer& layer);

/// The activation function that a layer ends with, if it has one as a field, or is Softmax.
[[nodiscard]] std::optional<ActivationFunction> activation_of(const Layer& layer);

}  // namespace lockstep
