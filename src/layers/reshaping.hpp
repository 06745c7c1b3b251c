// Reshape and Flatten: views of the same memory.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/reshaping.hpp>

#include <string_view>

namespace lockstep {

template <>
struct LayerTraits<Reshape> {
  static constexpr std::string_view class_name = "Reshape";
  static Reshape blank() { return Reshape(Shape()); }

  static void fields(auto& visit, auto& reshape) { visit.required("target_shape", reshape.target_shape); }

  static void infer(const Reshape& reshape, ShapeInference& shapes);

  static void lower(const Reshape& /*reshape*/, auto& to) { to.view(); }
};

template <>
struct LayerTraits<Flatten> {
  static constexpr std::string_view class_name = "Flatten";

  static void fields(auto& visit, auto& /*flatten*/) { visit.constant("data_format", "channels_last"); }

  static void infer(const Flatten& /*flatten*/, ShapeInference& shapes) {
    shapes.set_output(Shape{shapes.input().elements()});
  }

  /// If the next layer that depends on the order of elements accepts any order, Flatten needs no view.
  static void lower(const Flatten& /*flatten*/, auto& to) {
    if (!to.is_order_absorbed_later()) to.view();
  }

  static ElementOrder element_order(const Flatten& /*flatten*/) { return ElementOrder::passed_on; }
};

}  // namespace lockstep
