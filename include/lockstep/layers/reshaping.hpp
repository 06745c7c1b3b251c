// Layers that change the shape of their input.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/geometry.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Reshapes each example in row-major order. One dimension may be -1: it is computed from the number of elements.
struct Reshape : CallableLayer<Reshape> {
  explicit Reshape(Shape target_shape_, std::string name_ = {})
      : target_shape(std::move(target_shape_)), name(std::move(name_)) {}
  Shape target_shape;
  std::string name;
};

/// Flattens each example to a vector.
struct Flatten : CallableLayer<Flatten> {
  explicit Flatten(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// Surrounds an image with zeros.
struct ZeroPadding2D : CallableLayer<ZeroPadding2D> {
  explicit ZeroPadding2D(Margins2D padding_ = 1, std::string name_ = {}) : padding(padding_), name(std::move(name_)) {}
  Margins2D padding;
  std::string name;
};

/// Puts zeros before and after a sequence (steps, channels).
struct ZeroPadding1D : CallableLayer<ZeroPadding1D> {
  explicit ZeroPadding1D(Margins1D padding_ = 1, std::string name_ = {}) : padding(padding_), name(std::move(name_)) {}
  Margins1D padding;
  std::string name;
};

/// Cuts off the edges of an image.
struct Cropping2D : CallableLayer<Cropping2D> {
  explicit Cropping2D(Margins2D cropping_ = 0, std::string name_ = {}) : cropping(cropping_), name(std::move(name_)) {}
  Margins2D cropping;
  std::string name;
};

/// Cuts off the ends of a sequence (steps, channels).
struct Cropping1D : CallableLayer<Cropping1D> {
  explicit Cropping1D(Margins1D cropping_ = 1, std::string name_ = {}) : cropping(cropping_), name(std::move(name_)) {}
  Margins1D cropping;
  std::string name;
};

/// Keeps the middle of an image, of this height and width.
struct CenterCrop : CallableLayer<CenterCrop> {
  CenterCrop(int height_, int width_, std::string name_ = {})
      : height(height_), width(width_), name(std::move(name_)) {}
  int height;
  int width;
  std::string name;
};

struct ResizingOptions {
  Interpolation interpolation = Interpolation::bilinear;
  std::string name = {};
};

/// Enlarges or reduces an image to this height and width. A pixel depends on one or four of the input's, also where
/// the image becomes smaller.
struct Resizing : ResizingOptions, CallableLayer<Resizing> {
  Resizing(int height_, int width_, ResizingOptions options = {})
      : ResizingOptions(std::move(options)), height(height_), width(width_) {}
  int height;
  int width;
};

struct UpSampling2DOptions {
  Interpolation interpolation = Interpolation::nearest;
  std::string name = {};
};

/// Repeats each row and column, or interpolates between them.
struct UpSampling2D : UpSampling2DOptions, CallableLayer<UpSampling2D> {
  explicit UpSampling2D(Size2D size_ = 2, UpSampling2DOptions options = {})
      : UpSampling2DOptions(std::move(options)), size(size_) {}
  Size2D size;
};

/// Repeats each step of a sequence (steps, channels).
struct UpSampling1D : CallableLayer<UpSampling1D> {
  explicit UpSampling1D(int size_ = 2, std::string name_ = {}) : size(size_), name(std::move(name_)) {}
  int size;
  std::string name;
};

/// A sequence of n times the input vector.
struct RepeatVector : CallableLayer<RepeatVector> {
  explicit RepeatVector(int n_, std::string name_ = {}) : n(n_), name(std::move(name_)) {}
  int n;
  std::string name;
};

/// Reorders axes: axis i of the output is axis dims[i] of the input, counted from 1.
struct Permute : CallableLayer<Permute> {
  explicit Permute(std::vector<int> dims_, std::string name_ = {}) : dims(std::move(dims_)), name(std::move(name_)) {}
  std::vector<int> dims;
  std::string name;
};

}  // namespace lockstep
