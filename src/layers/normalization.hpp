// BatchNormalization.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/normalization.hpp>

#include <string_view>

namespace lockstep {

template <>
struct LayerTraits<BatchNormalization> {
  static constexpr std::string_view class_name = "BatchNormalization";

  static void fields(auto& visit, auto& normalization) {
    visit.last_axis("axis");
    visit.optional("momentum", normalization.momentum, zero_to_one);
    visit.optional("epsilon", normalization.epsilon, positive);
    visit.optional("center", normalization.center);
    visit.optional("scale", normalization.scale);
    visit.constant("beta_initializer", Initializer::zeros);
    visit.constant("gamma_initializer", Initializer::ones);
    visit.constant("moving_mean_initializer", Initializer::zeros);
    visit.constant("moving_variance_initializer", Initializer::ones);
    visit.ignored("renorm_momentum");  // has no effect without `renorm`, which is not supported
  }

  static void infer(const BatchNormalization& normalization, ShapeInference& shapes) {
    const Shape channels{shapes.input()[shapes.input().rank() - 1]};
    if (normalization.scale) shapes.add_weight("gamma", channels, Initializer::ones);
    if (normalization.center) shapes.add_weight("beta", channels, Initializer::zeros);
    shapes.add_moving_average("moving_mean", channels, Initializer::zeros, normalization.momentum);
    shapes.add_moving_average("moving_variance", channels, Initializer::ones, normalization.momentum);
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const BatchNormalization& /*normalization*/, Lowering& to) {
    to.append_weighted(Lowering::Kind::batch_normalization);
  }
};

}  // namespace lockstep
