// Layers that merge several tensors: Add, Subtract, Multiply, Average, Maximum, Minimum.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/merge_functions.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/merging.hpp>

#include <string_view>

namespace lockstep {

/// The traits that elementwise merges share.
template <MergeFunction function>
struct MergeTraits {
  static void fields(auto& /*visit*/, auto& /*merge*/) {}

  static void infer(const auto& /*merge*/, ShapeInference& shapes) {
    if (function == MergeFunction::subtract) shapes.need_inputs(2, 2);
    shapes.need_inputs(2);
    for (const Shape& other : shapes.inputs()) {
      if (other == shapes.input()) continue;
      shapes.fail("merges " + shapes.input().to_string() + " with " + other.to_string() +
                  "; all its inputs must have one shape");
    }
    shapes.set_output(shapes.input());
  }

  static void lower(const auto& /*merge*/, auto& to) { to.append_merge(function); }

  static ElementOrder element_order(const auto& /*merge*/) { return ElementOrder::passed_on; }
};

template <>
struct LayerTraits<Add> : MergeTraits<MergeFunction::add> {
  static constexpr std::string_view class_name = "Add";
};

template <>
struct LayerTraits<Subtract> : MergeTraits<MergeFunction::subtract> {
  static constexpr std::string_view class_name = "Subtract";
};

template <>
struct LayerTraits<Multiply> : MergeTraits<MergeFunction::multiply> {
  static constexpr std::string_view class_name = "Multiply";
};

template <>
struct LayerTraits<Average> : MergeTraits<MergeFunction::average> {
  static constexpr std::string_view class_name = "Average";
};

template <>
struct LayerTraits<Maximum> : MergeTraits<MergeFunction::maximum> {
  static constexpr std::string_view class_name = "Maximum";
};

template <>
struct LayerTraits<Minimum> : MergeTraits<MergeFunction::minimum> {
  static constexpr std::string_view class_name = "Minimum";
};

}  // namespace lockstep
