// Input and Rescaling.
#pragma once

#include "core/enum_names.hpp"
#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/input.hpp>

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace lockstep {

template <>
struct EnumNames<InputType> {
  static constexpr std::array all{std::pair{InputType::float32, "float32"}, std::pair{InputType::int32, "int32"},
                                  std::pair{InputType::int64, "int64"}, std::pair{InputType::uint8, "uint8"},
                                  std::pair{InputType::boolean, "bool"}};
};

template <>
struct LayerTraits<Input> {
  static constexpr std::string_view class_name = "InputLayer";
  static constexpr bool takes_trainable = false;
  static Input blank() { return Input(Shape()); }

  static void fields(auto& visit, auto& input) {
    visit.batch_shape(input.shape);
    visit.input_type("dtype", input.dtype);
  }

  static void infer(const Input& input, ShapeInference& shapes) {
    if (input.shape.rank() == 0) shapes.fail("needs a shape of at least one dimension, e.g. Input({784})");
    for (const std::int64_t extent : input.shape.extents()) {
      if (extent < 1)
        shapes.fail("has the shape " + input.shape.to_string() + ", but every dimension must be at least 1");
    }
    shapes.set_output(input.shape);
  }

  /// Does nothing: the graph already begins with the input.
  static void lower(const Input& /*input*/, auto& /*to*/) {}
};

template <>
struct LayerTraits<Rescaling> {
  static constexpr std::string_view class_name = "Rescaling";
  static constexpr bool reads_raw_numbers = true;
  static constexpr bool takes_integers = true;
  static Rescaling blank() { return Rescaling(1); }

  static void fields(auto& visit, auto& rescaling) {
    visit.required("scale", rescaling.scale, any_number);
    visit.optional("offset", rescaling.offset, any_number);
  }

  static void infer(const Rescaling& /*rescaling*/, ShapeInference& shapes) { shapes.set_output(shapes.input()); }

  static void lower(const Rescaling& rescaling, auto& to) { to.rescale(rescaling.scale, rescaling.offset); }
};

}  // namespace lockstep
