// Pooling over images (height, width, channels) and sequences (steps, channels) in channels_last format.
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

/// The options that poolings of images with a window share.
struct Pooling2D : Pooling2DOptions {
  explicit Pooling2D(Size2D pool_size_ = 2, Pooling2DOptions options = {})
      : Pooling2DOptions(std::move(options)), pool_size(pool_size_) {}
  Size2D pool_size;
};

struct Pooling1DOptions {
  Size1D strides = 0;  ///< 0: equal to the pool size
  Padding padding = Padding::valid;
  std::string name = {};
};

/// The options that poolings of sequences with a window share.
struct Pooling1D : Pooling1DOptions {
  explicit Pooling1D(Size1D pool_size_ = 2, Pooling1DOptions options = {})
      : Pooling1DOptions(std::move(options)), pool_size(pool_size_) {}
  Size1D pool_size;
};

struct GlobalPoolingOptions {
  bool keepdims = false;  ///< (1, 1, channels) or (1, channels) instead of (channels,)
  std::string name = {};
};

/// The options that poolings of whole images and sequences share.
struct GlobalPooling : GlobalPoolingOptions {
  explicit GlobalPooling(GlobalPoolingOptions options = {}) : GlobalPoolingOptions(std::move(options)) {}
};

/// The largest cell of each window. Among equal cells the first gets the whole gradient.
struct MaxPooling2D : Pooling2D, CallableLayer<MaxPooling2D> {
  using Pooling2D::Pooling2D;
};
struct MaxPooling1D : Pooling1D, CallableLayer<MaxPooling1D> {
  using Pooling1D::Pooling1D;
};

/// The mean of each window's cells, excluding `same` padding.
struct AveragePooling2D : Pooling2D, CallableLayer<AveragePooling2D> {
  using Pooling2D::Pooling2D;
};
struct AveragePooling1D : Pooling1D, CallableLayer<AveragePooling1D> {
  using Pooling1D::Pooling1D;
};

/// The largest value of each channel. Equal values share the gradient.
struct GlobalMaxPooling2D : GlobalPooling, CallableLayer<GlobalMaxPooling2D> {
  using GlobalPooling::GlobalPooling;
};
struct GlobalMaxPooling1D : GlobalPooling, CallableLayer<GlobalMaxPooling1D> {
  using GlobalPooling::GlobalPooling;
};

/// The mean of each channel.
struct GlobalAveragePooling2D : GlobalPooling, CallableLayer<GlobalAveragePooling2D> {
  using GlobalPooling::GlobalPooling;
};
struct GlobalAveragePooling1D : GlobalPooling, CallableLayer<GlobalAveragePooling1D> {
  using GlobalPooling::GlobalPooling;
};

}  // namespace lockstep
