// Activation, and the functions that are layers of their own.
#pragma once

#include "layers/activation_functions.hpp"
#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/activation.hpp>

#include <fmt/format.h>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

template <>
struct LayerTraits<Activation> {
  static constexpr std::string_view class_name = "Activation";
  static Activation blank() { return Activation(ActivationFunction::linear); }

  static void fields(auto& visit, auto& activation) { visit.optional("activation", activation.function); }

  static void infer(const Activation& /*activation*/, ShapeInference& shapes) { shapes.set_output(shapes.input()); }

  static void lower(const Activation& activation, auto& to) { to.activate(activation.function); }

  static ReturnsInput returns_input(const Activation& activation) {
    return activation.function == ActivationFunction::linear ? ReturnsInput::always : ReturnsInput::never;
  }

  static ElementOrder element_order(const Activation& activation) {
    return is_elementwise(activation.function) ? ElementOrder::passed_on : ElementOrder::significant;
  }
};

/// The traits that layers with an elementwise function share.
struct ElementwiseTraits {
  static void infer(const auto& /*layer*/, ShapeInference& shapes) { shapes.set_output(shapes.input()); }
  static ElementOrder element_order(const auto& /*layer*/) { return ElementOrder::passed_on; }
};

template <>
struct LayerTraits<Identity> : ElementwiseTraits {
  static constexpr std::string_view class_name = "Identity";
  static constexpr bool keeps_numbers = true;

  static void fields(auto& /*visit*/, auto& /*identity*/) {}

  static void lower(const Identity& /*identity*/, auto& /*to*/) {}
  static ReturnsInput returns_input(const Identity& /*identity*/) { return ReturnsInput::always; }
};

template <>
struct LayerTraits<ReLU> : ElementwiseTraits {
  static constexpr std::string_view class_name = "ReLU";

  static void fields(auto& visit, auto& relu) {
    visit.optional("max_value", relu.max_value, not_negative);
    visit.optional("negative_slope", relu.negative_slope, not_negative);
    visit.optional("threshold", relu.threshold, not_negative);
  }

  static ActivationFunction function_of(const ReLU& relu) {
    const auto slope = static_cast<float>(relu.negative_slope);
    if (relu.threshold == 0 && !relu.max_value) {
      return slope == 0 ? activations::relu : ActivationFunction(ActivationFunction::Kind::leaky_relu, slope);
    }
    if (relu.threshold == 0 && slope == 0 && *relu.max_value == 6) return activations::relu6;
    ActivationFunction function(ActivationFunction::Kind::clipped_relu, slope);
    function.threshold = static_cast<float>(relu.threshold);
    if (relu.max_value) function.max_value = static_cast<float>(*relu.max_value);
    return function;
  }

  static void lower(const ReLU& relu, auto& to) { to.activate(function_of(relu)); }
};

template <>
struct LayerTraits<LeakyReLU> : ElementwiseTraits {
  static constexpr std::string_view class_name = "LeakyReLU";

  static void fields(auto& visit, auto& relu) {
    visit.optional("negative_slope", relu.negative_slope, not_negative);
    visit.legacy("alpha", "negative_slope", relu.negative_slope);
  }

  static void lower(const LeakyReLU& relu, auto& to) {
    to.activate(ActivationFunction(ActivationFunction::Kind::leaky_relu, static_cast<float>(relu.negative_slope)));
  }
};

template <>
struct LayerTraits<ELU> : ElementwiseTraits {
  static constexpr std::string_view class_name = "ELU";

  /// With a negative alpha, the derivative would not follow from the output.
  static void fields(auto& visit, auto& elu) { visit.optional("alpha", elu.alpha, not_negative); }

  static void lower(const ELU& elu, auto& to) {
    to.activate(ActivationFunction(ActivationFunction::Kind::elu, static_cast<float>(elu.alpha)));
  }
};

template <>
struct LayerTraits<PReLU> {
  static constexpr std::string_view class_name = "PReLU";

  static void fields(auto& visit, auto& relu) {
    visit.optional("alpha_initializer", relu.alpha_initializer);
    visit.optional("alpha_regularizer", relu.alpha_regularizer);
    visit.optional("alpha_constraint", relu.alpha_constraint);
    visit.optional("shared_axes", relu.shared_axes);
  }

  static void infer(const PReLU& relu, ShapeInference& shapes) {
    std::vector<std::int64_t> slopes(shapes.input().extents().begin(), shapes.input().extents().end());
    for (const int axis : relu.shared_axes) {
      if (axis < 1 || axis > static_cast<int>(slopes.size())) {
        shapes.fail(fmt::format("shares slopes along axis {}, but its input {} has the axes 1 to {}", axis,
                                shapes.input().to_string(), slopes.size()));
      }
      slopes[static_cast<std::size_t>(axis - 1)] = 1;
    }
    shapes.add_weight("alpha", Shape(std::move(slopes)), relu.alpha_initializer, relu.alpha_regularizer,
                      relu.alpha_constraint);
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const PReLU& /*relu*/, Lowering& to) {
    to.append_weighted(Lowering::Kind::prelu);
  }
};

template <>
struct LayerTraits<Softmax> {
  static constexpr std::string_view class_name = "Softmax";
  static constexpr ActivationFunction activation = ActivationFunction::softmax;

  static void fields(auto& visit, auto& /*softmax*/) { visit.last_axis("axis"); }

  static void infer(const Softmax& /*softmax*/, ShapeInference& shapes) { shapes.set_output(shapes.input()); }

  static void lower(const Softmax& /*softmax*/, auto& to) { to.activate(activation); }
};

}  // namespace lockstep
