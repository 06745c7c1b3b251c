// Layers that are random in training, and ActivityRegularization.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/layer.hpp>
#include <lockstep/layers/regularization.hpp>

#include <string_view>

namespace lockstep {

/// Throws UsageError unless each axis of a mask is 1 or that of the input. An empty mask is that of each element.
void check_noise_shape(const Shape& noise, const ShapeInference& shapes);

/// Dropout and AlphaDropout.
template <typename L>
struct DropoutTraits {
  static L blank() { return L(0); }

  static void fields(auto& visit, auto& dropout) {
    visit.required("rate", dropout.rate, below_one);
    visit.unused("seed");  // masks are drawn from the job's seed
    visit.noise_shape("noise_shape", dropout.noise_shape);
  }

  static void infer(const L& dropout, ShapeInference& shapes) {
    check_noise_shape(dropout.noise_shape, shapes);
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const L& dropout, Lowering& to) {
    if (dropout.rate > 0) to.append_elementwise(Lowering::Kind::dropout);
  }

  static ReturnsInput returns_input(const L& dropout) { return returns_input_at(dropout.rate); }

  static ElementOrder element_order(const L& dropout) {
    return dropout.noise_shape.rank() == 0 ? ElementOrder::passed_on : ElementOrder::significant;
  }
};

template <>
struct LayerTraits<Dropout> : DropoutTraits<Dropout> {
  static constexpr std::string_view class_name = "Dropout";
};

template <>
struct LayerTraits<AlphaDropout> : DropoutTraits<AlphaDropout> {
  static constexpr std::string_view class_name = "AlphaDropout";
};

template <>
struct LayerTraits<SpatialDropout2D> {
  static constexpr std::string_view class_name = "SpatialDropout2D";
  static constexpr bool takes_trainable = false;
  static SpatialDropout2D blank() { return SpatialDropout2D(0); }

  static void fields(auto& visit, auto& dropout) {
    visit.required("rate", dropout.rate, below_one);
    visit.unused("seed");
    visit.constant("data_format", "channels_last");
  }

  static void infer(const SpatialDropout2D& /*dropout*/, ShapeInference& shapes) {
    shapes.need_image();
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const SpatialDropout2D& dropout, Lowering& to) {
    if (dropout.rate > 0) to.append(Lowering::Kind::dropout);
  }

  static ReturnsInput returns_input(const SpatialDropout2D& dropout) { return returns_input_at(dropout.rate); }
};

template <>
struct LayerTraits<SpatialDropout1D> {
  static constexpr std::string_view class_name = "SpatialDropout1D";
  static constexpr bool takes_trainable = false;
  static SpatialDropout1D blank() { return SpatialDropout1D(0); }

  static void fields(auto& visit, auto& dropout) {
    visit.required("rate", dropout.rate, below_one);
    visit.unused("seed");
  }

  static void infer(const SpatialDropout1D& /*dropout*/, ShapeInference& shapes) {
    shapes.need_rank(2, "(steps, channels)");
    shapes.set_output(shapes.input());
  }

  template <typename Lowering>
  static void lower(const SpatialDropout1D& dropout, Lowering& to) {
    if (dropout.rate > 0) to.append(Lowering::Kind::dropout);
  }

  static ReturnsInput returns_input(const SpatialDropout1D& dropout) { return returns_input_at(dropout.rate); }
};

/// What a layer does whose operation is `dropout`. A kept element becomes scale x + shift, others become `dropped`.
struct DropRule {
  float rate = 0;
  Shape noise_shape;  ///< of the mask for one example; empty: that of the input
  float scale = 1.0F / (1.0F - rate);
  float shift = 0;
  float dropped = 0;
};
[[nodiscard]] DropRule drop_rule(const Layer& layer, const Shape& input);

template <>
struct LayerTraits<GaussianNoise> {
  static constexpr std::string_view class_name = "GaussianNoise";
  static GaussianNoise blank() { return GaussianNoise(0); }

  static void fields(auto& visit, auto& noise) {
    visit.required("stddev", noise.stddev, zero_to_one);
    visit.unused("seed");  // noise is drawn from the job's seed
  }

  static void infer(const GaussianNoise& /*noise*/, ShapeInference& shapes) { shapes.set_output(shapes.input()); }

  template <typename Lowering>
  static void lower(const GaussianNoise& noise, Lowering& to) {
    if (noise.stddev > 0) to.append(Lowering::Kind::noise);
  }

  static ReturnsInput returns_input(const GaussianNoise& noise) { return returns_input_at(noise.stddev); }
};

template <>
struct LayerTraits<GaussianDropout> {
  static constexpr std::string_view class_name = "GaussianDropout";
  static GaussianDropout blank() { return GaussianDropout(0); }

  static void fields(auto& visit, auto& noise) {
    visit.required("rate", noise.rate, below_one);
    visit.unused("seed");
  }

  static void infer(const GaussianDropout& /*noise*/, ShapeInference& shapes) { shapes.set_output(shapes.input()); }

  template <typename Lowering>
  static void lower(const GaussianDropout& noise, Lowering& to) {
    if (noise.rate > 0) to.append(Lowering::Kind::noise);
  }

  static ReturnsInput returns_input(const GaussianDropout& noise) { return returns_input_at(noise.rate); }
};

template <>
struct LayerTraits<ActivityRegularization> {
  static constexpr std::string_view class_name = "ActivityRegularization";

  static void fields(auto& visit, auto& layer) {
    visit.optional("l1", layer.l1, not_negative);
    visit.optional("l2", layer.l2, not_negative);
  }

  static void infer(const ActivityRegularization& /*layer*/, ShapeInference& shapes) {
    shapes.set_output(shapes.input());
  }

  static void lower(const ActivityRegularization& /*layer*/, auto& /*to*/) {}

  static ReturnsInput returns_input(const ActivityRegularization& /*layer*/) { return ReturnsInput::always; }

  static ElementOrder element_order(const ActivityRegularization& /*layer*/) { return ElementOrder::passed_on; }

  static Regularizer activity_regularizer(const ActivityRegularization& layer) { return {layer.l1, layer.l2}; }
};

}  // namespace lockstep
