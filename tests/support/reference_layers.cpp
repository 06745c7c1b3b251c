// The reference's layers, except those that slide a window (reference_windows.cpp).
#include "support/reference_layers.hpp"

#include "support/reference_activation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::reference {
namespace {

/// Input, Reshape and Flatten: the same values with another shape.
class ReshapeLayer : public Layer {
 public:
  Values forward(const Pass&, std::span<const Values>, const Values& input) override { return input; }
  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override { return gradient; }
};

class ActivationLayer : public Layer {
 public:
  ActivationLayer(ActivationFunction function, const Shape& shape) : activated_(function, shape[shape.rank() - 1]) {}
  Values forward(const Pass&, std::span<const Values>, const Values& input) override {
    return activated_.forward(input);
  }
  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    return activated_.backward(gradient);
  }

 private:
  Activated activated_;
};

class DenseLayer : public Layer {
 public:
  DenseLayer(const Dense& dense, std::int64_t inputs)
      : inputs_(inputs), units_(dense.units), bias_(dense.use_bias), activated_(dense.activation, dense.units) {}

  Values forward(const Pass& pass, std::span<const Values> parameters, const Values& input) override {
    input_ = input;
    examples_ = pass.examples == 0 ? 0 : static_cast<std::int64_t>(input.size()) / inputs_;  // a row for each pixel
    Values z(at(examples_ * units_));
    for (std::int64_t n = 0; n < examples_; ++n) {
      for (std::int64_t j = 0; j < units_; ++j) z[at(n * units_ + j)] = bias_ ? parameters[1][at(j)] : 0;
      for (std::int64_t i = 0; i < inputs_; ++i) {
        for (std::int64_t j = 0; j < units_; ++j) {
          z[at(n * units_ + j)] += input[at(n * inputs_ + i)] * parameters[0][at(i * units_ + j)];
        }
      }
    }
    return activated_.forward(std::move(z));
  }

  Values backward(std::span<const Values> parameters, std::span<Values> gradients, const Values& gradient) override {
    const Values dz = activated_.backward(gradient);
    Values dx(input_.size());
    for (std::int64_t n = 0; n < examples_; ++n) {
      for (std::int64_t j = 0; j < units_ && bias_; ++j) gradients[1][at(j)] += dz[at(n * units_ + j)];
      for (std::int64_t i = 0; i < inputs_; ++i) {
        for (std::int64_t j = 0; j < units_; ++j) {
          const double d = dz[at(n * units_ + j)];
          gradients[0][at(i * units_ + j)] += input_[at(n * inputs_ + i)] * d;
          dx[at(n * inputs_ + i)] += parameters[0][at(i * units_ + j)] * d;
        }
      }
    }
    return dx;
  }

 private:
  std::int64_t inputs_, units_;
  bool bias_;
  std::int64_t examples_ = 0;
  Values input_;
  Activated activated_;
};

class DropoutLayer : public Layer {
 public:
  /// `noise`: the shape of the mask; elements along its axes of size 1 have one decision.
  DropoutLayer(double rate, const Shape& shape, const Shape& noise, std::uint32_t ordinal)
      : rate_(rate), elements_(shape.elements()), ordinal_(ordinal) {
    for (std::int64_t i = 0; i < elements_; ++i) {
      std::int64_t decision = 0;
      std::int64_t inner = elements_;
      for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
        inner /= shape[axis];
        decision = decision * noise[axis] + i / inner % shape[axis] % noise[axis];
      }
      decisions_.push_back(static_cast<std::uint32_t>(decision));
    }
  }

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    factors_.assign(input.size(), 1);
    if (pass.training) {
      for (std::size_t i = 0; i < input.size(); ++i) {
        const bool keep = (*pass.keep)({.seed = pass.seed,
                                        .layer = ordinal_,
                                        .step = pass.step,
                                        .place = pass.batch_offset + static_cast<std::uint32_t>(i / at(elements_)),
                                        .index = decisions_[i % at(elements_)],
                                        .rate = rate_});
        factors_[i] = keep ? 1 / (1 - rate_) : 0;
      }
    }
    return times_factors(input);
  }

  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    return times_factors(gradient);
  }

 private:
  [[nodiscard]] Values times_factors(Values values) const {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= factors_[i];
    return values;
  }
  double rate_;
  std::int64_t elements_;
  std::uint32_t ordinal_;
  std::vector<std::uint32_t> decisions_;  // by element
  Values factors_;
};

/// Statistics over all axes of the replica but the last. Normalization and moving variance use the biased variance.
/// A merge of one element's values, and its derivative with respect to value k. Of equal largest or smallest values the
/// first has all of the gradient.
struct MergeFormula {
  double (*value)(const Values& x);
  double (*derivative)(const Values& x, std::size_t k);
};

double sum_of(const Values& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

double product_without(const Values& x, std::size_t k) {
  double product = 1;
  for (std::size_t i = 0; i < x.size(); ++i) product *= i == k ? 1 : x[i];
  return product;
}

std::size_t first_largest(const Values& x) {
  return static_cast<std::size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}
std::size_t first_smallest(const Values& x) {
  return static_cast<std::size_t>(std::min_element(x.begin(), x.end()) - x.begin());
}

constexpr MergeFormula add_formula{[](const Values& x) { return sum_of(x); },
                                   [](const Values&, std::size_t) { return 1.0; }};
constexpr MergeFormula subtract_formula{[](const Values& x) { return x[0] - x[1]; },
                                        [](const Values&, std::size_t k) { return k == 0 ? 1.0 : -1.0; }};
constexpr MergeFormula multiply_formula{[](const Values& x) { return x[0] * product_without(x, 0); }, product_without};
constexpr MergeFormula average_formula{[](const Values& x) { return sum_of(x) / static_cast<double>(x.size()); },
                                       [](const Values& x, std::size_t) { return 1 / static_cast<double>(x.size()); }};
constexpr MergeFormula maximum_formula{
    [](const Values& x) { return x[first_largest(x)]; },
    [](const Values& x, std::size_t k) { return first_largest(x) == k ? 1.0 : 0.0; }};
constexpr MergeFormula minimum_formula{
    [](const Values& x) { return x[first_smallest(x)]; },
    [](const Values& x, std::size_t k) { return first_smallest(x) == k ? 1.0 : 0.0; }};

class MergedLayer : public Layer {
 public:
  MergedLayer(const MergeFormula& formula, CallShapes shapes) : formula_(formula), shapes_(std::move(shapes)) {}

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    input_ = input;
    examples_ = pass.examples;
    Values output(at(examples_ * shapes_.output.elements()));
    for (std::size_t i = 0; i < output.size(); ++i) output[i] = formula_.value(operands(i));
    return output;
  }

  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    Values dx(input_.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      for (std::size_t k = 0; k < shapes_.inputs.size(); ++k) {
        dx[place(i, k)] += gradient[i] * formula_.derivative(operands(i), k);
      }
    }
    return dx;
  }

 private:
  /// The index in the inputs of what element i of the output takes from input k, where axes of size 1 are repeated.
  [[nodiscard]] std::size_t place(std::size_t i, std::size_t k) const {
    std::int64_t inner = shapes_.output.elements();
    const std::int64_t example = static_cast<std::int64_t>(i) / inner;
    std::int64_t element = 0;
    for (std::size_t axis = 0; axis < shapes_.output.rank(); ++axis) {
      inner /= shapes_.output[axis];
      const std::int64_t along = static_cast<std::int64_t>(i) / inner % shapes_.output[axis];
      element = element * shapes_.inputs[k][axis] + along % shapes_.inputs[k][axis];
    }
    std::int64_t begin = example * shapes_.inputs[k].elements();
    for (std::size_t before = 0; before < k; ++before) begin += examples_ * shapes_.inputs[before].elements();
    return at(begin + element);
  }

  [[nodiscard]] Values operands(std::size_t i) const {
    Values values;
    for (std::size_t k = 0; k < shapes_.inputs.size(); ++k) values.push_back(input_[place(i, k)]);
    return values;
  }

  const MergeFormula& formula_;
  CallShapes shapes_;
  std::int64_t examples_ = 0;
  Values input_;
};

class BatchNormalizationLayer : public Layer {
 public:
  BatchNormalizationLayer(const BatchNormalization& normalization, const Shape& shape)
      : options_(normalization), frozen_(!normalization.trainable), channels_(at(shape[shape.rank() - 1])) {
    std::size_t next = 0;
    if (options_.scale) gamma_ = next++;
    if (options_.center) beta_ = next++;
    mean_ = next++;
    variance_ = next;
  }

  Values forward(const Pass& pass, std::span<const Values> parameters, const Values& input) override {
    const auto rows = static_cast<double>(input.size() / channels_);
    Values mean = parameters[mean_];
    Values variance = parameters[variance_];
    if (pass.training && !frozen_) {
      mean.assign(channels_, 0);
      variance.assign(channels_, 0);
      for (std::size_t i = 0; i < input.size(); ++i) mean[i % channels_] += input[i] / rows;
      for (std::size_t i = 0; i < input.size(); ++i)
        variance[i % channels_] += square(input[i] - mean[i % channels_]) / rows;
    }
    inverse_deviation_.resize(channels_);
    for (std::size_t c = 0; c < channels_; ++c) inverse_deviation_[c] = 1 / std::sqrt(variance[c] + options_.epsilon);
    normalized_.resize(input.size());
    Values output(input.size());
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::size_t c = i % channels_;
      normalized_[i] = (input[i] - mean[c]) * inverse_deviation_[c];
      output[i] =
          normalized_[i] * (options_.scale ? parameters[gamma_][c] : 1) + (options_.center ? parameters[beta_][c] : 0);
    }
    batch_mean_ = std::move(mean);
    batch_variance_ = std::move(variance);
    return output;
  }

  Values backward(std::span<const Values> parameters, std::span<Values> gradients, const Values& gradient) override {
    const auto rows = static_cast<double>(gradient.size() / channels_);
    Values sum(channels_);
    Values dot(channels_);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      sum[i % channels_] += gradient[i];
      dot[i % channels_] += gradient[i] * normalized_[i];
    }
    for (std::size_t c = 0; c < channels_; ++c) {
      if (options_.scale) gradients[gamma_][c] += dot[c];
      if (options_.center) gradients[beta_][c] += sum[c];
      gradients[mean_][c] += batch_mean_[c];
      gradients[variance_][c] += batch_variance_[c];
    }
    Values dx(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const std::size_t c = i % channels_;
      const double gamma = options_.scale ? parameters[gamma_][c] : 1;
      const double through_statistics = frozen_ ? 0 : sum[c] / rows + normalized_[i] * dot[c] / rows;
      dx[i] = gamma * inverse_deviation_[c] * (gradient[i] - through_statistics);
    }
    return dx;
  }

 private:
  static double square(double value) { return value * value; }

  BatchNormalizationOptions options_;
  bool frozen_;
  std::size_t channels_;
  std::size_t gamma_ = 0, beta_ = 0, mean_ = 0, variance_ = 0;  // indices of parameters
  Values inverse_deviation_, normalized_, batch_mean_, batch_variance_;
};

template <typename L>
concept HasKernelSize = requires(const L& layer) {
  layer.kernel_size;
};
template <typename L>
concept SlidesWindow = HasKernelSize<L> || std::is_base_of_v<Pooling2D, L> || std::is_base_of_v<Pooling1D, L> ||
    std::is_base_of_v<GlobalPooling, L>;

struct WindowMaker {
  const LayerInfo& info;

  template <SlidesWindow L>
  std::unique_ptr<Layer> operator()(const L&) const {
    return make_window_layer(info);
  }
};

}  // namespace

std::unique_ptr<Layer> make_layer(const LayerInfo& info, std::uint32_t ordinal, const CallShapes& shapes) {
  struct Maker : WindowMaker {
    std::uint32_t ordinal;
    const CallShapes& shapes;
    using WindowMaker::operator();
    using Made = std::unique_ptr<Layer>;
    Made operator()(const Input&) const { return std::make_unique<ReshapeLayer>(); }
    Made operator()(const Reshape&) const { return std::make_unique<ReshapeLayer>(); }
    Made operator()(const Rescaling& rescaling) const { return make_affine(rescaling); }
    Made operator()(const Flatten&) const { return std::make_unique<ReshapeLayer>(); }
    Made operator()(const Identity&) const { return std::make_unique<ReshapeLayer>(); }
    Made operator()(const ActivityRegularization&) const { return std::make_unique<ReshapeLayer>(); }
    Made operator()(const Dense& dense) const {
      return std::make_unique<DenseLayer>(dense, info.parameters[0].shape[0]);
    }
    Made operator()(const Dropout& dropout) const {
      return drop(dropout.rate, dropout.noise_shape.rank() == 0 ? shapes.output : dropout.noise_shape);
    }
    Made operator()(const AlphaDropout& layer) const {
      return make_alpha_dropout(drop(layer.rate, layer.noise_shape.rank() == 0 ? shapes.output : layer.noise_shape),
                                layer.rate);
    }
    Made operator()(const SpatialDropout1D& dropout) const { return drop(dropout.rate, {1, shapes.output[1]}); }
    Made operator()(const SpatialDropout2D& dropout) const { return drop(dropout.rate, {1, 1, shapes.output[2]}); }
    [[nodiscard]] Made drop(double rate, const Shape& noise) const {
      return std::make_unique<DropoutLayer>(rate, shapes.output, noise, ordinal);
    }
    Made operator()(const BatchNormalization& normalization) const {
      return std::make_unique<BatchNormalizationLayer>(normalization, info.input_shape);
    }
    Made operator()(const Activation& activation) const { return activated(activation.function); }
    Made operator()(const Softmax&) const { return activated(softmax); }
    Made operator()(const ReLU& relu) const {
      ActivationFunction function(ActivationFunction::Kind::clipped_relu, static_cast<float>(relu.negative_slope));
      function.threshold = static_cast<float>(relu.threshold);
      if (relu.max_value) function.max_value = static_cast<float>(*relu.max_value);
      return activated(function);
    }
    Made operator()(const LeakyReLU& relu) const {
      return activated(
          ActivationFunction(ActivationFunction::Kind::leaky_relu, static_cast<float>(relu.negative_slope)));
    }
    Made operator()(const ELU& elu) const {
      return activated(ActivationFunction(ActivationFunction::Kind::elu, static_cast<float>(elu.alpha)));
    }
    [[nodiscard]] Made activated(ActivationFunction function) const {
      return std::make_unique<ActivationLayer>(function, shapes.output);
    }
    Made operator()(const PReLU& layer) const { return make_weighted_layer(layer, info, shapes); }
    Made operator()(const LayerScale& layer) const { return make_weighted_layer(layer, info, shapes); }
    Made operator()(const ZeroPadding1D& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const ZeroPadding2D& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const Cropping1D& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const Cropping2D& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const CenterCrop& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const Resizing& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const UpSampling1D& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const UpSampling2D& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const RepeatVector& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const Permute& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const Concatenate& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const Dot& layer) const { return make_dot(layer, shapes); }
    Made operator()(const CustomScaleLayer& layer) const { return make_shape_layer(layer, shapes); }
    Made operator()(const LayerNormalization& layer) const { return make_normalization(layer, shapes.output); }
    Made operator()(const RMSNormalization& layer) const { return make_normalization(layer, shapes.output); }
    Made operator()(const GroupNormalization& layer) const { return make_normalization(layer, shapes.output); }
    Made operator()(const UnitNormalization& layer) const { return make_normalization(layer, shapes.output); }
    Made operator()(const Normalization& layer) const { return make_affine(layer, shapes.output); }
    Made operator()(const GaussianNoise& noise) const { return make_noise(noise, shapes.output.elements(), ordinal); }
    Made operator()(const GaussianDropout& noise) const { return make_noise(noise, shapes.output.elements(), ordinal); }
    Made operator()(const RandomFlip& layer) const { return make_augmentation(layer, shapes.output, ordinal); }
    Made operator()(const RandomTranslation& layer) const { return make_augmentation(layer, shapes.output, ordinal); }
    Made operator()(const RandomRotation& layer) const { return make_augmentation(layer, shapes.output, ordinal); }
    Made operator()(const RandomZoom& layer) const { return make_augmentation(layer, shapes.output, ordinal); }
    Made operator()(const RandomContrast& layer) const { return make_augmentation(layer, shapes.output, ordinal); }
    Made operator()(const RandomBrightness& layer) const { return make_augmentation(layer, shapes.output, ordinal); }
    Made operator()(const Embedding& embedding) const { return make_embedding(embedding); }
    Made operator()(const CategoryEncoding& encoding) const { return make_encoding(encoding, shapes); }
    Made operator()(const Discretization& bins) const { return make_encoding(bins, shapes); }
    Made operator()(const Add&) const { return merge(add_formula); }
    Made operator()(const Subtract&) const { return merge(subtract_formula); }
    Made operator()(const Multiply&) const { return merge(multiply_formula); }
    Made operator()(const Average&) const { return merge(average_formula); }
    Made operator()(const Maximum&) const { return merge(maximum_formula); }
    Made operator()(const Minimum&) const { return merge(minimum_formula); }
    Made operator()(const NestedModel&) const { throw std::invalid_argument("reference: the model is not flattened"); }
    [[nodiscard]] Made merge(const MergeFormula& formula) const {
      return std::make_unique<MergedLayer>(formula, shapes);
    }
  };
  return std::visit(Maker{{info}, ordinal, shapes}, info.layer);
}

}  // namespace lockstep::reference
