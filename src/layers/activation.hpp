// Activation.
#pragma once

#include "layers/activation_functions.hpp"
#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/activation.hpp>

#include <string_view>

namespace lockstep {

template <>
struct LayerTraits<Activation> {
  static constexpr std::string_view class_name = "Activation";
  static Activation blank() { return Activation(ActivationFunction::linear); }

  static void fields(auto& visit, auto& activation) { visit.optional("activation", activation.function); }

  static void infer(const Activation& /*activation*/, ShapeInference& shapes) { shapes.set_output(shapes.input()); }

  static void lower(const Activation& activation, auto& to) { to.activate(activation.function); }

  static ElementOrder element_order(const Activation& activation) {
    return is_elementwise(activation.function) ? ElementOrder::passed_on : ElementOrder::significant;
  }
};

}  // namespace lockstep
