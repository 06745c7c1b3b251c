// Layers that change images at random in training.
#pragma once

#include "core/enum_names.hpp"
#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/augmentation.hpp>

#include <fmt/format.h>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace lockstep {

template <>
struct EnumNames<FlipMode> {
  static constexpr std::array all{std::pair{FlipMode::horizontal, "horizontal"},
                                  std::pair{FlipMode::vertical, "vertical"},
                                  std::pair{FlipMode::horizontal_and_vertical, "horizontal_and_vertical"}};
};

/// Keras' "wrap" is missing: its backends differ about the pixels between one edge and the other.
template <>
struct EnumNames<FillMode> {
  static constexpr std::array all{std::pair{FillMode::reflect, "reflect"}, std::pair{FillMode::constant, "constant"},
                                  std::pair{FillMode::nearest, "nearest"}};
};

/// The traits that these layers share.
struct AugmentationTraits {
  static void infer_image(ShapeInference& shapes) {
    shapes.need_image();
    shapes.set_output(shapes.input());
  }

  static void check(std::string_view key, const RandomFactor& factor, const Interval& range, ShapeInference& shapes) {
    if (range.contains(factor.lower) && range.contains(factor.upper)) return;
    shapes.fail(
        fmt::format("has {} from {} to {}, but both must be {}", key, factor.lower, factor.upper, range.to_string()));
  }

  static void check_range(const PixelOptions& pixels, ShapeInference& shapes) {
    const bool is_range = pixels.value_range.size() == 2 && pixels.value_range[0] < pixels.value_range[1];
    if (!is_range) shapes.fail("needs a value_range of two numbers, the lower one first");
  }

  static void warp_fields(auto& visit, auto& layer) {
    visit.optional("fill_mode", layer.fill_mode);
    visit.optional("interpolation", layer.interpolation);
    visit.unused("seed");  // images change by the job's seed
    visit.optional("fill_value", layer.fill_value, any_number);
  }

  static void pixel_fields(auto& visit, auto& layer) {
    visit.constant("data_format", "channels_last");
    visit.required("factor", layer.factor);
    visit.optional("value_range", layer.value_range);
    visit.unused("seed");
  }

  template <typename Lowering>
  static void lower(const auto& /*layer*/, Lowering& to) {
    to.append_channels_last(Lowering::Kind::augment);
  }
};

template <>
struct LayerTraits<RandomFlip> : AugmentationTraits {
  static constexpr std::string_view class_name = "RandomFlip";

  static void fields(auto& visit, auto& layer) {
    visit.constant("data_format", "channels_last");
    visit.unused("seed");
    visit.optional("mode", layer.mode);
  }

  static void infer(const RandomFlip& /*layer*/, ShapeInference& shapes) { infer_image(shapes); }
};

template <>
struct LayerTraits<RandomTranslation> : AugmentationTraits {
  static constexpr std::string_view class_name = "RandomTranslation";
  static RandomTranslation blank() { return {0, 0}; }

  static void fields(auto& visit, auto& layer) {
    visit.constant("data_format", "channels_last");
    visit.required("height_factor", layer.height_factor);
    visit.required("width_factor", layer.width_factor);
    warp_fields(visit, layer);
  }

  static void infer(const RandomTranslation& layer, ShapeInference& shapes) {
    constexpr Interval range{.min = -1, .max = 1};
    check("height_factor", layer.height_factor, range, shapes);
    check("width_factor", layer.width_factor, range, shapes);
    infer_image(shapes);
  }
};

template <>
struct LayerTraits<RandomRotation> : AugmentationTraits {
  static constexpr std::string_view class_name = "RandomRotation";
  static RandomRotation blank() { return RandomRotation(0); }

  static void fields(auto& visit, auto& layer) {
    visit.constant("data_format", "channels_last");
    visit.required("factor", layer.factor);
    warp_fields(visit, layer);
  }

  static void infer(const RandomRotation& layer, ShapeInference& shapes) {
    check("factor", layer.factor, {.min = -1, .max = 1}, shapes);
    infer_image(shapes);
  }
};

template <>
struct LayerTraits<RandomZoom> : AugmentationTraits {
  static constexpr std::string_view class_name = "RandomZoom";
  static RandomZoom blank() { return RandomZoom(0); }

  static void fields(auto& visit, auto& layer) {
    visit.constant("data_format", "channels_last");
    visit.required("height_factor", layer.height_factor);
    visit.optional("width_factor", layer.width_factor);
    warp_fields(visit, layer);
  }

  static void infer(const RandomZoom& layer, ShapeInference& shapes) {
    constexpr Interval range{.min = -1, .max = 1, .includes_min = false};
    check("height_factor", layer.height_factor, range, shapes);
    if (layer.width_factor) check("width_factor", *layer.width_factor, range, shapes);
    infer_image(shapes);
  }
};

template <>
struct LayerTraits<RandomContrast> : AugmentationTraits {
  static constexpr std::string_view class_name = "RandomContrast";
  static RandomContrast blank() { return RandomContrast(0); }

  static void fields(auto& visit, auto& layer) { pixel_fields(visit, layer); }

  static void infer(const RandomContrast& layer, ShapeInference& shapes) {
    check("factor", layer.factor, zero_to_one, shapes);
    check_range(layer, shapes);
    infer_image(shapes);
  }
};

template <>
struct LayerTraits<RandomBrightness> : AugmentationTraits {
  static constexpr std::string_view class_name = "RandomBrightness";
  static RandomBrightness blank() { return RandomBrightness(0); }

  static void fields(auto& visit, auto& layer) { pixel_fields(visit, layer); }

  static void infer(const RandomBrightness& layer, ShapeInference& shapes) {
    check("factor", layer.factor, {.min = -1, .max = 1}, shapes);
    check_range(layer, shapes);
    infer_image(shapes);
  }
};

}  // namespace lockstep
