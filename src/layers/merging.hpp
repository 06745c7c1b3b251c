// Layers that merge several tensors: elementwise ones, Concatenate and Dot.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/merge_functions.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/merging.hpp>

#include <cstddef>
#include <string_view>

namespace lockstep {

/// The shape of an elementwise merge: along each axis the inputs have one size, or 1. Throws UsageError if they do not.
[[nodiscard]] Shape broadcast_shape(const ShapeInference& shapes);

/// The index of an axis among the axes of an example, where 1 is the first after the batch and -1 the last. The axis
/// exists.
[[nodiscard]] constexpr std::size_t example_axis(int axis, std::size_t rank) {
  return axis < 0 ? rank - static_cast<std::size_t>(-axis) : static_cast<std::size_t>(axis - 1);
}

/// The traits that elementwise merges share.
template <MergeFunction function>
struct MergeTraits {
  static void fields(auto& /*visit*/, auto& /*merge*/) {}

  static void infer(const auto& /*merge*/, ShapeInference& shapes) {
    if (function == MergeFunction::subtract) shapes.need_inputs(2, 2);
    shapes.need_inputs(2);
    shapes.set_output(broadcast_shape(shapes));
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

template <>
struct LayerTraits<CustomScaleLayer> : MergeTraits<MergeFunction::add> {
  static constexpr std::string_view class_name = "CustomScaleLayer";
  static constexpr std::string_view module = "keras.src.applications.inception_resnet_v2";
  static CustomScaleLayer blank() { return CustomScaleLayer(1); }

  static void fields(auto& visit, auto& merge) { visit.required("scale", merge.scale, any_number); }

  static void infer(const CustomScaleLayer& /*merge*/, ShapeInference& shapes) {
    shapes.need_inputs(2, 2);
    shapes.set_output(broadcast_shape(shapes));
  }

  static void lower(const CustomScaleLayer& /*merge*/, auto& to) { to.append_merge(MergeFunction::add, 1); }
};

template <>
struct LayerTraits<Concatenate> {
  static constexpr std::string_view class_name = "Concatenate";

  static void fields(auto& visit, auto& merge) { visit.optional("axis", merge.axis, any_number); }

  static void infer(const Concatenate& merge, ShapeInference& shapes);

  static void lower(const Concatenate& merge, auto& to) {
    to.append_concatenate(example_axis(merge.axis, to.output_shape().rank()));
  }
};

template <>
struct LayerTraits<Dot> {
  static constexpr std::string_view class_name = "Dot";
  static Dot blank() { return Dot(-1); }

  static void fields(auto& visit, auto& dot) {
    visit.required("axes", dot.axes);
    visit.optional("normalize", dot.normalize);
  }

  static void infer(const Dot& dot, ShapeInference& shapes);

  static void lower(const Dot& dot, auto& to) { to.append_dot(dot.axes); }
};

}  // namespace lockstep
