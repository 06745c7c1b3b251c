// Layers that are active only in training, and ActivityRegularization.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/layers/callable.hpp>

#include <string>
#include <utility>

namespace lockstep {

struct DropoutOptions {
  /// The shape of one example's mask. Along an axis of size 1, all elements are kept or dropped together. Empty: each
  /// element by itself.
  Shape noise_shape = {};
  std::string name = {};
};

/// In training, drops an element with probability `rate` and scales the others by 1 / (1 - rate).
struct Dropout : DropoutOptions, CallableLayer<Dropout> {
  explicit Dropout(double rate_, DropoutOptions options = {}) : DropoutOptions(std::move(options)), rate(rate_) {}
  double rate;
};

/// Dropout of whole channels of an image.
struct SpatialDropout2D : CallableLayer<SpatialDropout2D> {
  explicit SpatialDropout2D(double rate_, std::string name_ = {}) : rate(rate_), name(std::move(name_)) {}
  double rate;
  std::string name;
};

/// Dropout of whole channels of a sequence (steps, channels).
struct SpatialDropout1D : CallableLayer<SpatialDropout1D> {
  explicit SpatialDropout1D(double rate_, std::string name_ = {}) : rate(rate_), name(std::move(name_)) {}
  double rate;
  std::string name;
};

struct AlphaDropoutOptions {
  Shape noise_shape = {};  ///< as Dropout's
  std::string name = {};
};

/// Dropout for layers with the activation `selu`. In training, sets an element to selu's smallest value with
/// probability `rate`, then scales and shifts all of them, so that mean 0 and variance 1 stay.
struct AlphaDropout : AlphaDropoutOptions, CallableLayer<AlphaDropout> {
  explicit AlphaDropout(double rate_, AlphaDropoutOptions options = {})
      : AlphaDropoutOptions(std::move(options)), rate(rate_) {}
  double rate;
};

/// In training, adds normal noise of this standard deviation, 0 to 1 as in Keras 3.
struct GaussianNoise : CallableLayer<GaussianNoise> {
  explicit GaussianNoise(double stddev_, std::string name_ = {}) : stddev(stddev_), name(std::move(name_)) {}
  double stddev;
  std::string name;
};

/// In training, multiplies by normal noise of mean 1 and variance rate / (1 - rate).
struct GaussianDropout : CallableLayer<GaussianDropout> {
  explicit GaussianDropout(double rate_, std::string name_ = {}) : rate(rate_), name(std::move(name_)) {}
  double rate;
  std::string name;
};

struct ActivityRegularizationOptions {
  double l1 = 0;
  double l2 = 0;
  std::string name = {};
};

/// Returns its input x, and adds l1 Σ|x| + l2 Σx², divided by the size of the batch, to the loss.
struct ActivityRegularization : ActivityRegularizationOptions, CallableLayer<ActivityRegularization> {
  explicit ActivityRegularization(ActivityRegularizationOptions options = {})
      : ActivityRegularizationOptions(std::move(options)) {}
};

}  // namespace lockstep
