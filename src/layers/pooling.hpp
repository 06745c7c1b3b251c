// Max and average pooling of images and sequences, with a window and global.
#pragma once

#include "layers/layer_traits.hpp"
#include "layers/shape_inference.hpp"
#include "layers/window.hpp"

#include <lockstep/layers/pooling.hpp>

#include <string_view>
#include <type_traits>

namespace lockstep {

/// The traits that poolings with a window share.
struct PoolingTraits {
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
  static void complete(Pooling1D& pooling) {
    if (pooling.strides.length == 0) pooling.strides = pooling.pool_size;
  }

  [[nodiscard]] static Windows windows_of(const auto& pooling) {
    return Windows::of(pooling.pool_size, pooling.strides, 1, pooling.padding);
  }

  template <typename L>
  static void infer(const L& pooling, ShapeInference& shapes) {
    if constexpr (std::is_base_of_v<Pooling1D, L>) {
      shapes.need_sequence();
    } else {
      shapes.need_image();
    }
    shapes.slide("pool", windows_of(pooling), shapes.input()[shapes.input().rank() - 1]);
  }
};

struct MaxPoolingTraits : PoolingTraits {
  template <typename Lowering>
  static void lower(const auto& pooling, Lowering& to) {
    to.append_pooling(Lowering::Kind::max_pooling, windows_of(pooling));
  }
};

struct AveragePoolingTraits : PoolingTraits {
  template <typename Lowering>
  static void lower(const auto& pooling, Lowering& to) {
    to.append_pooling(Lowering::Kind::average_pooling, windows_of(pooling));
  }
};

template <>
struct LayerTraits<MaxPooling2D> : MaxPoolingTraits {
  static constexpr std::string_view class_name = "MaxPooling2D";
};

template <>
struct LayerTraits<MaxPooling1D> : MaxPoolingTraits {
  static constexpr std::string_view class_name = "MaxPooling1D";
};

template <>
struct LayerTraits<AveragePooling2D> : AveragePoolingTraits {
  static constexpr std::string_view class_name = "AveragePooling2D";
};

template <>
struct LayerTraits<AveragePooling1D> : AveragePoolingTraits {
  static constexpr std::string_view class_name = "AveragePooling1D";
};

/// The traits that global poolings share. `is_1d`: of sequences.
template <bool is_1d>
struct GlobalPoolingTraits {
  static void fields(auto& visit, auto& pooling) {
    visit.constant("data_format", "channels_last");
    visit.optional("keepdims", pooling.keepdims);
  }

  static void infer(const auto& pooling, ShapeInference& shapes) {
    if constexpr (is_1d) {
      shapes.need_sequence();
    } else {
      shapes.need_image();
    }
    const std::int64_t channels = shapes.input()[shapes.input().rank() - 1];
    if (!pooling.keepdims) {
      shapes.set_output(Shape{channels});
    } else if constexpr (is_1d) {
      shapes.set_output(Shape{1, channels});
    } else {
      shapes.set_output(Shape{1, 1, channels});
    }
  }
};

template <bool is_1d>
struct GlobalMaxPoolingTraits : GlobalPoolingTraits<is_1d> {
  template <typename Lowering>
  static void lower(const auto& /*pooling*/, Lowering& to) {
    to.append_global_pooling(Lowering::Kind::global_max_pooling);
  }
};

template <bool is_1d>
struct GlobalAveragePoolingTraits : GlobalPoolingTraits<is_1d> {
  template <typename Lowering>
  static void lower(const auto& /*pooling*/, Lowering& to) {
    to.append_global_pooling(Lowering::Kind::average_pooling);
  }
};

template <>
struct LayerTraits<GlobalMaxPooling2D> : GlobalMaxPoolingTraits<false> {
  static constexpr std::string_view class_name = "GlobalMaxPooling2D";
};

template <>
struct LayerTraits<GlobalMaxPooling1D> : GlobalMaxPoolingTraits<true> {
  static constexpr std::string_view class_name = "GlobalMaxPooling1D";
};

template <>
struct LayerTraits<GlobalAveragePooling2D> : GlobalAveragePoolingTraits<false> {
  static constexpr std::string_view class_name = "GlobalAveragePooling2D";
};

template <>
struct LayerTraits<GlobalAveragePooling1D> : GlobalAveragePoolingTraits<true> {
  static constexpr std::string_view class_name = "GlobalAveragePooling1D";
};

}  // namespace lockstep
