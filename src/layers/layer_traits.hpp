// A layer type declares its properties once, in a specialization of LayerTraits:
//   - class_name: Keras' class, from which a layer's automatic name derives. Optional: its module, else keras.layers.
//   - class_name_of(l): the class of a type that stands for several. Optional.
//   - blank(): a layer whose optional fields have their defaults, if it is not default-constructible.
//   - fields(visit, l): the keys of Keras' configuration except `name`, `trainable` and `dtype`; see core/fields.hpp.
//   - complete(l): replaces defaults that depend on other fields. Optional.
//   - infer(l, s): output shape, parameters and errors; see ShapeInference. Ranges have been checked.
//   - lower(l, to): appends the layer's operations; see CallLowering in the graph module, and OnnxLowering in
//     export/onnx_lowering.cpp. It names operation kinds through the template parameter, because layers do not include
//     the graph.
//   - activation: the function of a layer that is nothing else and has no field for it. Optional.
//   - activity_regularizer(l): the penalty of the output, for a layer that has no field of this name. Optional.
//   - takes_trainable: false if the constructor of Keras' class has no argument `trainable`. Optional; default true.
//   - reads_raw_numbers: whether bytes reach it as they are, as in Keras, and not times 1/255. Optional; default false.
//   - takes_integers: whether Keras makes floats of integers before the layer, or looks them up. Optional; default
//   false.
//   - keeps_numbers: whether it changes no numbers, only their shape. Optional; default false.
//   - returns_input(l): whether its output is its input itself. Optional; default `never`.
//   - element_order(l): how the layer depends on its input's element order. Optional; default `significant`.
#pragma once

#include "core/fields.hpp"

#include <lockstep/layers/callable.hpp>

#include <type_traits>

namespace lockstep {

template <typename L>
struct LayerTraits;

/// Whether layers of type L merge a list of tensors.
template <typename L>
inline constexpr bool is_merge = std::is_base_of_v<MergeLayer<L>, L>;

/// Whether a layer's output is its input itself, not a copy or other values: then Keras on TensorFlow knows of the
/// output what has computed the input.
enum class ReturnsInput {
  never,
  in_inference,  ///< in training it changes values
  always,
};

/// Of a layer that does nothing at rate 0.
[[nodiscard]] constexpr ReturnsInput returns_input_at(double rate) noexcept {
  return rate > 0 ? ReturnsInput::in_inference : ReturnsInput::always;
}

/// How a layer depends on the order of its input's elements in memory.
enum class ElementOrder {
  significant,  ///< it must be Keras' order
  passed_on,    ///< the layer is elementwise, so the output has the input's order
  absorbed,     ///< any order is allowed, because the kernel's rows are stored in that order
};

}  // namespace lockstep
