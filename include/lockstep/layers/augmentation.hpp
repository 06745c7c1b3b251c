// Layers that change images at random in training, each example by a draw of its own. In inference they return their
// input. They come before the first layer whose weights are trained.
#pragma once

#include <lockstep/layers/callable.hpp>
#include <lockstep/layers/geometry.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The range that a layer draws from: [-factor, factor], or from the lower to the higher bound.
struct RandomFactor {
  RandomFactor(double factor)  // NOLINT(google-explicit-constructor): as Keras reads `0.2`
      : lower(-std::abs(factor)), upper(std::abs(factor)) {}
  RandomFactor(double a, double b) : lower(std::min(a, b)), upper(std::max(a, b)) {}
  double lower;
  double upper;
  friend bool operator==(const RandomFactor&, const RandomFactor&) = default;
};

/// Which sides RandomFlip exchanges: left and right, top and bottom, or both at once.
enum class FlipMode : std::uint8_t { horizontal, vertical, horizontal_and_vertical };

/// What is beyond the edges of an image: its reflection, a constant, or the nearest pixel.
enum class FillMode : std::uint8_t { reflect, constant, nearest };

struct RandomFlipOptions {
  FlipMode mode = FlipMode::horizontal_and_vertical;
  std::string name = {};
};

/// Flips half of the images.
struct RandomFlip : RandomFlipOptions, CallableLayer<RandomFlip> {
  explicit RandomFlip(RandomFlipOptions options = {}) : RandomFlipOptions(std::move(options)) {}
};

/// Of layers that move pixels.
struct WarpOptions {
  FillMode fill_mode = FillMode::reflect;
  Interpolation interpolation = Interpolation::bilinear;
  double fill_value = 0;  ///< for FillMode::constant
  std::string name = {};
};

/// Shifts images down and right by parts of their height and width.
struct RandomTranslation : WarpOptions, CallableLayer<RandomTranslation> {
  RandomTranslation(RandomFactor height_factor_, RandomFactor width_factor_, WarpOptions options = {})
      : WarpOptions(std::move(options)), height_factor(height_factor_), width_factor(width_factor_) {}
  RandomFactor height_factor;
  RandomFactor width_factor;
};

/// Rotates images around their centers by parts of a full turn.
struct RandomRotation : WarpOptions, CallableLayer<RandomRotation> {
  explicit RandomRotation(RandomFactor factor_, WarpOptions options = {})
      : WarpOptions(std::move(options)), factor(factor_) {}
  RandomFactor factor;
};

struct RandomZoomOptions {
  std::optional<RandomFactor> width_factor = {};  ///< none: height and width are zoomed alike
  FillMode fill_mode = FillMode::reflect;
  Interpolation interpolation = Interpolation::bilinear;
  double fill_value = 0;  ///< for FillMode::constant
  std::string name = {};
};

/// Shows 1 + factor times the height and width of images: a positive factor zooms out.
struct RandomZoom : RandomZoomOptions, CallableLayer<RandomZoom> {
  explicit RandomZoom(RandomFactor height_factor_, RandomZoomOptions options = {})
      : RandomZoomOptions(std::move(options)), height_factor(height_factor_) {}
  RandomFactor height_factor;
};

/// Of layers that change the values of pixels.
struct PixelOptions {
  std::vector<double> value_range = {0, 255};  ///< results are clipped to it
  std::string name = {};
};

/// Multiplies the distance of each value from the mean of its channel by a number from 1 - factor.lower to
/// 1 + factor.upper.
struct RandomContrast : PixelOptions, CallableLayer<RandomContrast> {
  explicit RandomContrast(RandomFactor factor_, PixelOptions options = {})
      : PixelOptions(std::move(options)), factor(std::max(factor_.lower, 0.0), factor_.upper) {}
  RandomFactor factor;
};

/// Adds a part of the length of value_range to all values of an image.
struct RandomBrightness : PixelOptions, CallableLayer<RandomBrightness> {
  explicit RandomBrightness(RandomFactor factor_, PixelOptions options = {})
      : PixelOptions(std::move(options)), factor(factor_) {}
  RandomFactor factor;
};

}  // namespace lockstep
