// Dense.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/dense.hpp>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

template <>
struct LayerTraits<Dense> {
  static constexpr std::string_view class_name = "Dense";
  static constexpr bool takes_integers = true;
  static Dense blank() { return Dense(1); }

  static void fields(auto& visit, auto& dense) {
    visit.required("units", dense.units, at_least_one);
    visit.optional("activation", dense.activation);
    visit.optional("use_bias", dense.use_bias);
    visit.optional("kernel_initializer", dense.kernel_initializer);
    visit.optional("bias_initializer", dense.bias_initializer);
    visit.optional("kernel_regularizer", dense.kernel_regularizer);
    visit.optional("bias_regularizer", dense.bias_regularizer);
    visit.optional("activity_regularizer", dense.activity_regularizer);
    visit.optional("kernel_constraint", dense.kernel_constraint);
    visit.optional("bias_constraint", dense.bias_constraint);
  }

  static void infer(const Dense& dense, ShapeInference& shapes) {
    std::vector<std::int64_t> extents(shapes.input().extents().begin(), shapes.input().extents().end());
    shapes.add_weight("kernel", Shape{std::exchange(extents.back(), dense.units), dense.units},
                      dense.kernel_initializer, dense.kernel_regularizer, dense.kernel_constraint);
    if (dense.use_bias)
      shapes.add_weight("bias", Shape{dense.units}, dense.bias_initializer, dense.bias_regularizer,
                        dense.bias_constraint);
    shapes.set_output(Shape(std::move(extents)));
  }

  template <typename Lowering>
  static void lower(const Dense& dense, Lowering& to) {
    if (to.output_shape().rank() == 1) {
      to.append_weighted(Lowering::Kind::dense);
    } else {
      to.append_channels_last(Lowering::Kind::dense);
    }
    to.activate(dense.activation);
  }

  static ElementOrder element_order(const Dense& /*dense*/) { return ElementOrder::absorbed; }
};

}  // namespace lockstep
