// Pooling over images in channels_last format.
#pragma once

#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/geometry.hpp>

#include <string>
#include <utility>

namespace lockstep {

struct Pooling2DOptions {
  Size2D strides = 0;  ///< 0: equal to the pool size
  Padding padding = Padding::valid;
  std::string name = {};
};

/// The options that poolings with a window share.
struct Pooling2D : Pooling2DOptions {
  explicit Pooling2D(Size2D pool_size_ = 2, Pooling2DOptions options = {})
      : Pooling2DOptions(std::move(options)), pool_size(pool_size_) {}
  Size2D pool_size;
};

/// The largest cell of each window.
struct MaxPooling2D : Pooling2D, CallableLayer<MaxPooling2D> {
  using Pooling2D::Pooling2D;
};

/// The mean of each window's cells, excluding `same` padding.
struct AveragePooling2D : Pooling2D, CallableLayer<AveragePooling2D> {
  using Pooling2D::Pooling2D;
};

/// The mean of each channel over the whole image.
struct GlobalAveragePooling2D : CallableLayer<GlobalAveragePooling2D> {
  explicit GlobalAveragePooling2D(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

}  // namespace lockstep
