// BatchNormalization, the normalizations within an example, and layers that scale each channel.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/normalization.hpp>

#include <fmt/format.h>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

/// Adds the weights of a normalization over the last axis.
void add_scale_and_center(const auto& normalization, ShapeInference& shapes) {
  const Shape channels{shapes.input()[shapes.input().rank() - 1]};
  if (normalization.scale)
    shapes.add_weight("gamma", channels, Initializer::ones, normalization.gamma_regularizer,
                      normalization.gamma_constraint);
  if (normalization.center)
    shapes.add_weight("beta", channels, Initializer::zeros, normalization.beta_regularizer,
                      normalization.beta_constraint);
}

template <>
struct LayerTraits<BatchNormalization> {
  static constexpr std::string_view class_name = "BatchNormalization";

  static void fields(auto& visit, auto& normalization) {
    visit.last_axis("axis");
    visit.optional("momentum", normalization.momentum, zero_to_one);
    visit.optional("epsilon", normalization.epsilon, positive);
    visit.optional("center", normalization.center);
    visit.optional("scale", normalization.scale);
    visit.optional("synchronized", normalization.synchronized);
    visit.constant("beta_initializer", Initializer::zeros);
    visit.constant("gamma_initializer", Initializer::ones);
    visit.constant("moving_mean_initializer", Initializer::zeros);
    visit.constant("moving_variance_initializer", Initializer::ones);
    visit.optional("beta_regularizer", normalization.beta_regularizer);
    visit.optional("gamma_regularizer", normalization.gamma_regularizer);
    visit.optional("beta_constraint", normalization.beta_constraint);
    visit.optional("gamma_constraint", normalization.gamma_constraint);
    visit.ignored("renorm_momentum");  // has no effect without `renorm`, which is not supported
  }

  static void infer(const BatchNormalization& normalization, ShapeInference& shapes) {
    const Shape channels{shapes.input()[shapes.input().rank() - 1]};
    add_scale_and_center(normalization, shapes);
    shapes.add_moving_average("moving_mean", channels, Initializer::zeros, normalization.momentum);
    shapes.add_moving_average("moving_variance", channels, Initializer::ones, normalization.momentum);
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const BatchNormalization& /*normalization*/, Lowering& to) {
    to.append_weighted(Lowering::Kind::batch_normalization);
  }
};

template <>
struct LayerTraits<LayerNormalization> {
  static constexpr std::string_view class_name = "LayerNormalization";

  static void fields(auto& visit, auto& normalization) {
    visit.last_axis("axis");
    visit.optional("epsilon", normalization.epsilon, positive);
    visit.optional("center", normalization.center);
    visit.optional("scale", normalization.scale);
    visit.constant("beta_initializer", Initializer::zeros);
    visit.constant("gamma_initializer", Initializer::ones);
    visit.optional("beta_regularizer", normalization.beta_regularizer);
    visit.optional("gamma_regularizer", normalization.gamma_regularizer);
    visit.optional("beta_constraint", normalization.beta_constraint);
    visit.optional("gamma_constraint", normalization.gamma_constraint);
  }

  static void infer(const LayerNormalization& normalization, ShapeInference& shapes) {
    add_scale_and_center(normalization, shapes);
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const LayerNormalization& /*normalization*/, Lowering& to) {
    to.append_channels_last(Lowering::Kind::layer_normalization);
  }
};

template <>
struct LayerTraits<RMSNormalization> {
  static constexpr std::string_view class_name = "RMSNormalization";

  static void fields(auto& visit, auto& normalization) {
    visit.last_axis("axis");
    visit.optional("epsilon", normalization.epsilon, positive);
  }

  static void infer(const RMSNormalization& /*normalization*/, ShapeInference& shapes) {
    shapes.add_weight("scale", Shape{shapes.input()[shapes.input().rank() - 1]}, Initializer::ones);
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const RMSNormalization& /*normalization*/, Lowering& to) {
    to.append_channels_last(Lowering::Kind::layer_normalization);
  }
};

template <>
struct LayerTraits<GroupNormalization> {
  static constexpr std::string_view class_name = "GroupNormalization";

  static void fields(auto& visit, auto& normalization) {
    visit.optional("groups", normalization.groups, any_number);
    visit.last_axis("axis");
    visit.optional("epsilon", normalization.epsilon, positive);
    visit.optional("center", normalization.center);
    visit.optional("scale", normalization.scale);
    visit.constant("beta_initializer", Initializer::zeros);
    visit.constant("gamma_initializer", Initializer::ones);
    visit.optional("beta_regularizer", normalization.beta_regularizer);
    visit.optional("gamma_regularizer", normalization.gamma_regularizer);
    visit.optional("beta_constraint", normalization.beta_constraint);
    visit.optional("gamma_constraint", normalization.gamma_constraint);
  }

  static void infer(const GroupNormalization& normalization, ShapeInference& shapes) {
    const std::int64_t channels = shapes.input()[shapes.input().rank() - 1];
    const std::int64_t groups = normalization.groups == -1 ? channels : normalization.groups;
    if (groups < 1 || channels % groups != 0) {
      shapes.fail(fmt::format("has {} groups, which must divide the {} channels of its input {}", normalization.groups,
                              channels, shapes.input().to_string()));
    }
    add_scale_and_center(normalization, shapes);
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const GroupNormalization& /*normalization*/, Lowering& to) {
    to.append_channels_last(Lowering::Kind::layer_normalization);
  }
};

template <>
struct LayerTraits<UnitNormalization> {
  static constexpr std::string_view class_name = "UnitNormalization";

  static void fields(auto& visit, auto& /*normalization*/) { visit.last_axis("axis"); }

  static void infer(const UnitNormalization& /*normalization*/, ShapeInference& shapes) {
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const UnitNormalization& /*normalization*/, Lowering& to) {
    to.append_channels_last(Lowering::Kind::layer_normalization);
  }
};

template <>
struct LayerTraits<Normalization> {
  static constexpr std::string_view class_name = "Normalization";
  static constexpr bool reads_raw_numbers = true;

  static void fields(auto& visit, auto& normalization) {
    visit.last_axis("axis");
    visit.written_if(!normalization.mean.empty(), "mean", normalization.mean);
    visit.written_if(!normalization.variance.empty(), "variance", normalization.variance);
    visit.optional("invert", normalization.invert);
  }

  static void infer(const Normalization& normalization, ShapeInference& shapes) {
    const std::int64_t channels = shapes.input()[shapes.input().rank() - 1];
    const auto fits = [&](const std::vector<double>& values) {
      return values.size() == 1 || static_cast<std::int64_t>(values.size()) == channels;
    };
    if (normalization.mean.empty() && normalization.variance.empty()) {
      shapes.add_constant("mean", Shape{channels}, Initializer::zeros);
      shapes.add_constant("variance", Shape{channels}, Initializer::ones);
      shapes.add_constant("count", Shape{}, Initializer::zeros);  // Keras saves it, and nothing reads it
    } else if (!fits(normalization.mean) || !fits(normalization.variance)) {
      shapes.fail(fmt::format("has {} means and {} variances, but its input {} has {} channels",
                              normalization.mean.size(), normalization.variance.size(), shapes.input().to_string(),
                              channels));
    }
    shapes.set_output(shapes.input());
  }

  static void lower(const Normalization& /*normalization*/, auto& to) { to.append_affine(); }
};

template <>
struct LayerTraits<LayerScale> {
  static constexpr std::string_view class_name = "LayerScale";
  static constexpr std::string_view module = "keras.src.applications.convnext";
  static LayerScale blank() { return LayerScale(1, 1); }

  static void fields(auto& visit, auto& layer) {
    visit.required("init_values", layer.init_values, any_number);
    visit.required("projection_dim", layer.projection_dim, at_least_one);
  }

  static void infer(const LayerScale& layer, ShapeInference& shapes) {
    if (shapes.input()[shapes.input().rank() - 1] != layer.projection_dim) {
      shapes.fail(
          fmt::format("has projection_dim {}, but its input is {}", layer.projection_dim, shapes.input().to_string()));
    }
    shapes.add_weight("gamma", Shape{layer.projection_dim},
                      Initializer(Initializer::Kind::constant, layer.init_values));
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const LayerScale& /*layer*/, Lowering& to) {
    to.append_weighted(Lowering::Kind::layer_scale);
  }
};

}  // namespace lockstep
