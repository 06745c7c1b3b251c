// Max and average pooling with a window, and global average pooling.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"

#include <lockstep/layers/pooling.hpp>

#include <string_view>

namespace lockstep {

/// The traits that poolings with a window share.
struct Pooling2DTraits {
  static void fields(auto& visit, auto& pooling) {
    visit.optional("pool_size", pooling.pool_size, at_least_one);
    visit.optional("padding", pooling.padding);
    visit.optional("strides", pooling.strides, at_least_one);
    visit.constant("data_format", "channels_last");
  }

  static void complete(Pooling2D& pooling) {
    if (pooling.strides.height == 0) pooling.strides.height = pooling.pool_size.height;
    if (pooling.strides.width == 0) pooling.strides.width = pooling.pool_size.width;
  }

  static void infer(const Pooling2D& pooling, ShapeInference& shapes) {
    shapes.need_image();
    shapes.slide("pool", pooling.pool_size, pooling.strides, 1, pooling.padding, shapes.input()[2]);
  }
};

template <>
struct LayerTraits<MaxPooling2D> : Pooling2DTraits {
  static constexpr std::string_view class_name = "MaxPooling2D";

  template <typename Lowering>
  static void lower(const MaxPooling2D& /*pooling*/, Lowering& to) {
    to.append(Lowering::Kind::max_pooling);
  }
};

template <>
struct LayerTraits<AveragePooling2D> : Pooling2DTraits {
  static constexpr std::string_view class_name = "AveragePooling2D";

  template <typename Lowering>
  static void lower(const AveragePooling2D& /*pooling*/, Lowering& to) {
    to.append(Lowering::Kind::average_pooling);
  }
};

template <>
struct LayerTraits<GlobalAveragePooling2D> {
  static constexpr std::string_view class_name = "GlobalAveragePooling2D";

  static void fields(auto& visit, auto& /*pooling*/) {
    visit.constant("data_format", "channels_last");
    visit.constant("keepdims", false);
  }

  static void infer(const GlobalAveragePooling2D& /*pooling*/, ShapeInference& shapes) {
    shapes.need_image();
    shapes.set_output(Shape{shapes.input()[2]});
  }

  template <typename Lowering>
  static void lower(const GlobalAveragePooling2D& /*pooling*/, Lowering& to) {
    to.append(Lowering::Kind::average_pooling);
  }
};

}  // namespace lockstep
