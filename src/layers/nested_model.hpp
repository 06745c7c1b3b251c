// Nested models. Lowering sees the layers inside them: see Architecture::flattened().
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/nested_model.hpp>

#include <string_view>

namespace lockstep {

template <>
struct LayerTraits<NestedModel> {
  static constexpr std::string_view class_name = "Sequential";
  static std::string_view class_name_of(const NestedModel& nested);
  static NestedModel blank();

  static void fields(auto& /*visit*/, auto& /*nested*/) {}

  static void infer(const NestedModel& nested, ShapeInference& shapes);

  /// Does nothing: a flattened model has no nested ones.
  static void lower(const NestedModel& /*nested*/, auto& /*to*/) {}
};

}  // namespace lockstep
