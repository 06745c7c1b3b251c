// The layers a model is made of. They describe and never run; defaults and meaning are those of keras.layers with
// channels_last and float32. A convolution's kernel is [height, width, in, out], a Dense kernel [in, out].
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/nn/activation.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace lockstep {

/// Height and width; one number stands for both.
struct Extent {
  Extent(int both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor): as Keras reads `3`
  Extent(int height_, int width_) : height(height_), width(width_) {}
  int height;
  int width;
  friend bool operator==(const Extent&, const Extent&) = default;
};

enum class Padding { valid, same };

/// How a parameter begins. Uniform and normal draws follow Keras' definitions of the fans.
enum class Initializer { glorot_uniform, glorot_normal, he_uniform, he_normal, zeros, ones };

/// The shape of one example. First in a model.
struct Input {
  explicit Input(Shape shape_, std::string name_ = {}) : shape(std::move(shape_)), name(std::move(name_)) {}
  Shape shape;
  std::string name;
};

/// Row-major; one extent may be -1.
struct Reshape {
  explicit Reshape(Shape target_shape_, std::string name_ = {})
      : target_shape(std::move(target_shape_)), name(std::move(name_)) {}
  Shape target_shape;
  std::string name;
};

/// y = scale x + offset. Directly behind the Input (a Reshape may lie between), where it tells what to make of raw
/// data: bytes of a model that has one are 0 to 255, of one without they are divided by 255.
struct Rescaling {
  explicit Rescaling(double scale_, double offset_ = 0, std::string name_ = {})
      : scale(scale_), offset(offset_), name(std::move(name_)) {}
  double scale;
  double offset;
  std::string name;
};

struct Flatten {
  explicit Flatten(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

struct Conv2DOptions {
  Extent strides = 1;
  Padding padding = Padding::valid;
  Extent dilation_rate = 1;
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  std::string name = {};
};

/// Cross-correlation with a [kernel.height, kernel.width, in, filters] kernel.
struct Conv2D : Conv2DOptions {
  Conv2D(int filters_, Extent kernel_size_, Conv2DOptions options = {})
      : Conv2DOptions(std::move(options)), filters(filters_), kernel_size(kernel_size_) {}
  int filters;
  Extent kernel_size;
};

struct DenseOptions {
  ActivationFunction activation = ActivationFunction::linear;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::glorot_uniform;
  Initializer bias_initializer = Initializer::zeros;
  std::string name = {};
};

/// y = activation(x W + b). The input is one vector an example (use Flatten).
struct Dense : DenseOptions {
  explicit Dense(int units_, DenseOptions options = {}) : DenseOptions(std::move(options)), units(units_) {}
  int units;
};

struct Pooling2DOptions {
  Extent strides = 0;  ///< 0: as large as the pool
  Padding padding = Padding::valid;
  std::string name = {};
};

struct MaxPooling2D : Pooling2DOptions {
  explicit MaxPooling2D(Extent pool_size_ = 2, Pooling2DOptions options = {})
      : Pooling2DOptions(std::move(options)), pool_size(pool_size_) {}
  Extent pool_size;
};

/// Cells added by `same` padding do not count.
struct AveragePooling2D : Pooling2DOptions {
  explicit AveragePooling2D(Extent pool_size_ = 2, Pooling2DOptions options = {})
      : Pooling2DOptions(std::move(options)), pool_size(pool_size_) {}
  Extent pool_size;
};

struct GlobalAveragePooling2D {
  explicit GlobalAveragePooling2D(std::string name_ = {}) : name(std::move(name_)) {}
  std::string name;
};

/// In training drops an element with probability `rate` and scales the others by 1 / (1 - rate).
struct Dropout {
  explicit Dropout(double rate_, std::string name_ = {}) : rate(rate_), name(std::move(name_)) {}
  double rate;
  std::string name;
};

struct BatchNormalizationOptions {
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  std::string name = {};
};

/// Over the last axis. Statistics are those of a replica's slice of the batch; the moving ones (biased variance) are
/// averaged over the replicas at every step, so all workers hold the same.
struct BatchNormalization : BatchNormalizationOptions {
  explicit BatchNormalization(BatchNormalizationOptions options = {}) : BatchNormalizationOptions(std::move(options)) {}
};

struct Activation {
  explicit Activation(ActivationFunction function_, std::string name_ = {})
      : function(function_), name(std::move(name_)) {}
  ActivationFunction function;
  std::string name;
};

using Layer = std::variant<Input, Reshape, Rescaling, Flatten, Conv2D, Dense, MaxPooling2D, AveragePooling2D,
                           GlobalAveragePooling2D, Dropout, BatchNormalization, Activation>;

}  // namespace lockstep
