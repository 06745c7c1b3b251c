// Reshape and Flatten, which are views of the same memory, and the layers that move pixels.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/layer.hpp>
#include <lockstep/layers/reshaping.hpp>

#include <cstdint>
#include <string_view>

namespace lockstep {

template <>
struct LayerTraits<Reshape> {
  static constexpr std::string_view class_name = "Reshape";
  static constexpr bool keeps_numbers = true;
  static Reshape blank() { return Reshape(Shape()); }

  static void fields(auto& visit, auto& reshape) { visit.required("target_shape", reshape.target_shape); }

  static void infer(const Reshape& reshape, ShapeInference& shapes);

  static void lower(const Reshape& /*reshape*/, auto& to) { to.view(); }
};

template <>
struct LayerTraits<Flatten> {
  static constexpr std::string_view class_name = "Flatten";
  static constexpr bool keeps_numbers = true;

  static void fields(auto& visit, auto& /*flatten*/) { visit.constant("data_format", "channels_last"); }

  static void infer(const Flatten& /*flatten*/, ShapeInference& shapes) {
    shapes.set_output(Shape{shapes.input().elements()});
  }

  /// If the next layer that depends on the order of elements accepts any order, Flatten needs no view.
  static void lower(const Flatten& /*flatten*/, auto& to) {
    if (!to.is_order_absorbed_later()) to.view();
  }

  static ElementOrder element_order(const Flatten& /*flatten*/) { return ElementOrder::passed_on; }
};

/// The zeros that a ZeroPadding layer adds to each side of an image of this size, or what a Cropping layer or a
/// CenterCrop removes, as negative numbers. A sequence is an image of one row.
[[nodiscard]] Margins2D added_margins(const Layer& layer, std::int64_t height, std::int64_t width);

/// Sets the output shape of an image or a sequence with the layer's margins.
void infer_margins(const Layer& layer, bool is_image, ShapeInference& shapes);

/// The traits that layers which pad or crop share.
template <bool is_image>
struct MarginTraits {
  static void infer(const auto& layer, ShapeInference& shapes) { infer_margins(Layer(layer), is_image, shapes); }

  template <typename L, typename Lowering>
  static void lower(const L& /*layer*/, Lowering& to) {
    to.append(Lowering::Kind::pad);
  }
};

template <>
struct LayerTraits<ZeroPadding2D> : MarginTraits<true> {
  static constexpr std::string_view class_name = "ZeroPadding2D";

  static void fields(auto& visit, auto& pad) {
    visit.optional("padding", pad.padding, not_negative);
    visit.constant("data_format", "channels_last");
  }
};

template <>
struct LayerTraits<ZeroPadding1D> : MarginTraits<false> {
  static constexpr std::string_view class_name = "ZeroPadding1D";

  static void fields(auto& visit, auto& pad) {
    visit.optional("padding", pad.padding, not_negative);
    visit.expected("data_format", "channels_last");
  }
};

template <>
struct LayerTraits<Cropping2D> : MarginTraits<true> {
  static constexpr std::string_view class_name = "Cropping2D";

  static void fields(auto& visit, auto& crop) {
    visit.optional("cropping", crop.cropping, not_negative);
    visit.constant("data_format", "channels_last");
  }
};

template <>
struct LayerTraits<Cropping1D> : MarginTraits<false> {
  static constexpr std::string_view class_name = "Cropping1D";

  static void fields(auto& visit, auto& crop) { visit.optional("cropping", crop.cropping, not_negative); }
};

template <>
struct LayerTraits<CenterCrop> {
  static constexpr std::string_view class_name = "CenterCrop";
  static CenterCrop blank() { return {1, 1}; }

  static void fields(auto& visit, auto& crop) {
    visit.required("height", crop.height, at_least_one);
    visit.required("width", crop.width, at_least_one);
    visit.expected("data_format", "channels_last");  // which Keras 2 does not know
  }

  static void infer(const CenterCrop& crop, ShapeInference& shapes);

  template <typename Lowering>
  static void lower(const CenterCrop& /*crop*/, Lowering& to) {
    to.append(Lowering::Kind::pad);
  }
};

template <>
struct LayerTraits<Resizing> {
  static constexpr std::string_view class_name = "Resizing";
  static Resizing blank() { return {1, 1}; }

  static void fields(auto& visit, auto& resizing) {
    visit.required("height", resizing.height, at_least_one);
    visit.required("width", resizing.width, at_least_one);
    visit.optional("interpolation", resizing.interpolation);
    visit.constant("crop_to_aspect_ratio", false);
    visit.expected("pad_to_aspect_ratio", false);
    visit.ignored("fill_mode");  // has no effect without `pad_to_aspect_ratio`, which is not supported
    visit.ignored("fill_value");
    visit.expected("antialias", false);  // this and data_format Keras 2 does not know
    visit.expected("data_format", "channels_last");
  }

  static void infer(const Resizing& resizing, ShapeInference& shapes) {
    shapes.need_image();
    shapes.set_output(Shape{resizing.height, resizing.width, shapes.input()[2]});
  }

  template <typename Lowering>
  static void lower(const Resizing& /*resizing*/, Lowering& to) {
    to.append(Lowering::Kind::upsample);
  }
};

template <>
struct LayerTraits<UpSampling2D> {
  static constexpr std::string_view class_name = "UpSampling2D";

  static void fields(auto& visit, auto& upsampling) {
    visit.optional("size", upsampling.size, at_least_one);
    visit.constant("data_format", "channels_last");
    visit.optional("interpolation", upsampling.interpolation);
  }

  static void infer(const UpSampling2D& upsampling, ShapeInference& shapes) {
    shapes.need_image();
    const Shape& image = shapes.input();
    shapes.set_output(Shape{image[0] * upsampling.size.height, image[1] * upsampling.size.width, image[2]});
  }

  template <typename Lowering>
  static void lower(const UpSampling2D& /*upsampling*/, Lowering& to) {
    to.append(Lowering::Kind::upsample);
  }
};

template <>
struct LayerTraits<UpSampling1D> {
  static constexpr std::string_view class_name = "UpSampling1D";

  static void fields(auto& visit, auto& upsampling) { visit.optional("size", upsampling.size, at_least_one); }

  static void infer(const UpSampling1D& upsampling, ShapeInference& shapes) {
    shapes.need_rank(2, "(steps, channels)");
    shapes.set_output(Shape{shapes.input()[0] * upsampling.size, shapes.input()[1]});
  }

  template <typename Lowering>
  static void lower(const UpSampling1D& /*upsampling*/, Lowering& to) {
    to.append(Lowering::Kind::upsample);
  }
};

template <>
struct LayerTraits<RepeatVector> {
  static constexpr std::string_view class_name = "RepeatVector";
  static RepeatVector blank() { return RepeatVector(1); }

  static void fields(auto& visit, auto& repeat) { visit.required("n", repeat.n, at_least_one); }

  static void infer(const RepeatVector& repeat, ShapeInference& shapes) {
    shapes.need_rank(1, "(features,)");
    shapes.set_output(Shape{repeat.n, shapes.input()[0]});
  }

  template <typename Lowering>
  static void lower(const RepeatVector& /*repeat*/, Lowering& to) {
    to.append(Lowering::Kind::upsample);
  }
};

template <>
struct LayerTraits<Permute> {
  static constexpr std::string_view class_name = "Permute";
  static Permute blank() { return Permute({}); }

  static void fields(auto& visit, auto& permute) { visit.required("dims", permute.dims); }

  static void infer(const Permute& permute, ShapeInference& shapes);

  template <typename Lowering>
  static void lower(const Permute& /*permute*/, Lowering& to) {
    to.append_channels_last(Lowering::Kind::transpose);
  }
};

}  // namespace lockstep
