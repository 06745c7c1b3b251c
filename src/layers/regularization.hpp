// Dropout.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/regularization.hpp>

#include <string_view>

namespace lockstep {

template <>
struct LayerTraits<Dropout> {
  static constexpr std::string_view class_name = "Dropout";
  static Dropout blank() { return Dropout(0); }

  static void fields(auto& visit, auto& dropout) {
    visit.required("rate", dropout.rate, below_one);
    visit.unused("seed");  // masks are drawn from the job's seed
    visit.constant("noise_shape", nullptr);
  }

  static void infer(const Dropout& /*dropout*/, ShapeInference& shapes) { shapes.set_output(shapes.input()); }

  template <typename Lowering>
  static void lower(const Dropout& dropout, Lowering& to) {
    if (dropout.rate > 0) to.append_elementwise(Lowering::Kind::dropout);
  }

  static ElementOrder element_order(const Dropout& /*dropout*/) { return ElementOrder::passed_on; }
};

}  // namespace lockstep
