// The reference's layers that move, repeat or drop elements, and those with a weight for each element or row. One
// file, because they share its loops over elements.
#include "core/gaussian_noise.hpp"
#include "support/reference_activation.hpp"
#include "support/reference_layers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::reference {
namespace {

using Index = std::vector<std::int64_t>;

Index index_of(std::int64_t element, const Shape& shape) {
  Index index(shape.rank());
  for (std::size_t axis = shape.rank(); axis-- > 0; element /= shape[axis]) index[axis] = element % shape[axis];
  return index;
}

std::int64_t element_at(const Index& index, const Shape& shape) {
  std::int64_t element = 0;
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) element = element * shape[axis] + index[axis];
  return element;
}

/// A sum of weighted elements of the inputs for each element of the output.
class LinearLayer : public Layer {
 public:
  struct Term {
    std::size_t to, input, from;
    double weight;
  };

  LinearLayer(std::vector<Shape> inputs, const Shape& output)
      : inputs_(std::move(inputs)), size_(at(output.elements())) {}

  void add(std::int64_t to, std::size_t input, std::int64_t from, double weight = 1) {
    terms_.push_back({at(to), input, at(from), weight});
  }

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    examples_ = at(pass.examples);
    Values output(examples_ * size_);
    for_each([&](std::size_t to, std::size_t from, double weight) { output[to] += weight * input[from]; });
    return output;
  }
  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    std::size_t elements = 0;
    for (const Shape& shape : inputs_) elements += at(shape.elements());
    Values dx(examples_ * elements);
    for_each([&](std::size_t to, std::size_t from, double weight) { dx[from] += weight * gradient[to]; });
    return dx;
  }

 private:
  template <typename Visit>
  void for_each(const Visit& visit) const {
    std::vector<std::size_t> begins{0};
    for (const Shape& shape : inputs_) begins.push_back(begins.back() + examples_ * at(shape.elements()));
    for (std::size_t n = 0; n < examples_; ++n) {
      for (const Term& term : terms_) {
        visit(n * size_ + term.to, begins[term.input] + n * at(inputs_[term.input].elements()) + term.from,
              term.weight);
      }
    }
  }

  std::vector<Shape> inputs_;
  std::size_t size_;
  std::vector<Term> terms_;
  std::size_t examples_ = 0;
};

/// Each element of the output is the input's element at `source(index)`, or zero if that is outside.
std::unique_ptr<Layer> moved(const Shape& input, const Shape& output, const std::function<Index(Index)>& source) {
  auto layer = std::make_unique<LinearLayer>(std::vector{input}, output);
  for (std::int64_t i = 0; i < output.elements(); ++i) {
    const Index from = source(index_of(i, output));
    bool inside = true;
    for (std::size_t axis = 0; axis < from.size(); ++axis) inside &= from[axis] >= 0 && from[axis] < input[axis];
    if (inside) layer->add(i, 0, element_at(from, input));
  }
  return layer;
}

/// Each element of the output is a sum of products of elements of two inputs, which may be divided by the lengths of
/// their vectors along the summed axes first. The derivative of x / |x| is written out.
class DotLayer : public Layer {
 public:
  DotLayer(const Dot& dot, CallShapes shapes) : normalizes_(dot.normalize), shapes_(std::move(shapes)) {
    for (const std::size_t k : {0, 1}) {
      const auto rank = static_cast<int>(shapes_.inputs[k].rank());
      const int axis = k == 0 ? dot.axes.first : dot.axes.second;
      axes_[k] = static_cast<std::size_t>(axis < 0 ? rank + axis : axis - 1);
    }
  }

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    examples_ = at(pass.examples);
    input_ = input;
    scales_.assign(input.size(), 1);
    if (normalizes_) {
      for_each_vector([&](const std::vector<std::size_t>& elements) {
        double squares = 0;
        for (const std::size_t i : elements) squares += input[i] * input[i];
        for (const std::size_t i : elements) scales_[i] = std::min(1 / std::sqrt(squares), 1e7);
      });
    }
    Values output(examples_ * at(shapes_.output.elements()));
    for_each_product([&](std::size_t to, std::size_t x, std::size_t y) {
      output[to] += input[x] * scales_[x] * input[y] * scales_[y];
    });
    return output;
  }

  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    Values dx(input_.size());  // of the normalized inputs
    for_each_product([&](std::size_t to, std::size_t x, std::size_t y) {
      dx[x] += gradient[to] * input_[y] * scales_[y];
      dx[y] += gradient[to] * input_[x] * scales_[x];
    });
    if (!normalizes_) return dx;
    for_each_vector([&](const std::vector<std::size_t>& elements) {
      double dot = 0;
      for (const std::size_t i : elements) dot += dx[i] * input_[i];
      for (const std::size_t i : elements) dx[i] = scales_[i] * (dx[i] - input_[i] * dot * scales_[i] * scales_[i]);
    });
    return dx;
  }

 private:
  [[nodiscard]] std::size_t begin_of(std::size_t input, std::size_t example) const {
    const std::size_t before = input == 0 ? 0 : examples_ * at(shapes_.inputs[0].elements());
    return before + example * at(shapes_.inputs[input].elements());
  }

  /// The places in an input of the elements along the summed axis through each of its elements at index 0.
  template <typename Visit>
  void for_each_vector(const Visit& visit) const {
    for (const std::size_t k : {0, 1}) {
      for (std::size_t example = 0; example < examples_; ++example) {
        for (std::int64_t i = 0; i < shapes_.inputs[k].elements(); ++i) {
          Index index = index_of(i, shapes_.inputs[k]);
          if (index[axes_[k]] != 0) continue;
          std::vector<std::size_t> elements;
          for (; index[axes_[k]] < shapes_.inputs[k][axes_[k]]; ++index[axes_[k]]) {
            elements.push_back(begin_of(k, example) + at(element_at(index, shapes_.inputs[k])));
          }
          visit(elements);
        }
      }
    }
  }

  /// visit(element of the output, of the first input, of the second input), for all that are multiplied.
  template <typename Visit>
  void for_each_product(const Visit& visit) const {
    for (std::size_t example = 0; example < examples_; ++example) {
      for (std::int64_t x = 0; x < shapes_.inputs[0].elements(); ++x) {
        for (std::int64_t y = 0; y < shapes_.inputs[1].elements(); ++y) {
          Index of_x = index_of(x, shapes_.inputs[0]);
          Index of_y = index_of(y, shapes_.inputs[1]);
          if (of_x[axes_[0]] != of_y[axes_[1]]) continue;
          of_x.erase(of_x.begin() + static_cast<std::ptrdiff_t>(axes_[0]));
          of_y.erase(of_y.begin() + static_cast<std::ptrdiff_t>(axes_[1]));
          of_x.insert(of_x.end(), of_y.begin(), of_y.end());
          const std::int64_t to = of_x.empty() ? 0 : element_at(of_x, shapes_.output);
          visit(example * at(shapes_.output.elements()) + at(to), begin_of(0, example) + at(x),
                begin_of(1, example) + at(y));
        }
      }
    }
  }

  bool normalizes_;
  CallShapes shapes_;
  std::array<std::size_t, 2> axes_{};
  std::size_t examples_ = 0;
  Values input_, scales_;
};

/// Indices as such, or as vectors of `depth` elements. Nothing passes a gradient on.
class EncodingLayer : public Layer {
 public:
  EncodingLayer(OutputMode mode, std::int64_t depth, std::function<std::size_t(double)> index_of,
                const CallShapes& shapes)
      : mode_(mode),
        depth_(at(depth)),
        index_of_(std::move(index_of)),
        elements_(at(shapes.inputs.front().elements())),
        outputs_(at(shapes.output.elements())) {}

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    inputs_ = input.size();
    Values output(at(pass.examples) * outputs_);
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::size_t index = index_of_(input[i]);
      const std::size_t example = i / elements_;
      switch (mode_) {
        case OutputMode::integer: output[i] = static_cast<double>(index); break;
        case OutputMode::one_hot: output[i * depth_ + index] = 1; break;
        case OutputMode::multi_hot: output[example * depth_ + index] = 1; break;
        case OutputMode::count: output[example * depth_ + index] += 1; break;
      }
    }
    return output;
  }
  Values backward(std::span<const Values>, std::span<Values>, const Values&) override { return Values(inputs_); }

 private:
  OutputMode mode_;
  std::size_t depth_;
  std::function<std::size_t(double)> index_of_;
  std::size_t elements_, outputs_;
  std::size_t inputs_ = 0;
};

/// Elementwise, with a weight that all elements share whose index differs only along axes where `weights` has size 1.
class WeightedLayer : public Layer {
 public:
  WeightedLayer(const Shape& shape, const Shape& weights, bool is_prelu) : is_prelu_(is_prelu) {
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      Index index = index_of(i, shape);
      index.erase(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(shape.rank() - weights.rank()));
      for (std::size_t axis = 0; axis < index.size(); ++axis) index[axis] %= weights[axis];
      weight_of_.push_back(at(element_at(index, weights)));
    }
  }
  Values forward(const Pass&, std::span<const Values> parameters, const Values& input) override {
    input_ = input;
    Values output = input;
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (scales(i)) output[i] *= parameters[0][weight(i)];
    }
    return output;
  }
  Values backward(std::span<const Values> parameters, std::span<Values> gradients, const Values& gradient) override {
    Values dx = gradient;
    for (std::size_t i = 0; i < dx.size(); ++i) {
      if (!scales(i)) continue;
      gradients[0][weight(i)] += gradient[i] * input_[i];
      dx[i] *= parameters[0][weight(i)];
    }
    return dx;
  }

 private:
  [[nodiscard]] bool scales(std::size_t i) const { return !is_prelu_ || !(input_[i] > 0); }
  [[nodiscard]] std::size_t weight(std::size_t i) const { return weight_of_[i % weight_of_.size()]; }
  bool is_prelu_;
  std::vector<std::size_t> weight_of_;
  Values input_;
};

/// Normalizes sets of elements of each example. The derivative is that of each formula, written out.
class SetNormalization : public Layer {
 public:
  enum class By { deviation, root_mean_square, length };

  /// `set_of(index)`: which elements belong together.
  SetNormalization(const Shape& shape, const std::function<std::int64_t(const Index&)>& set_of, double epsilon, By by,
                   bool scale, bool center)
      : channels_(at(shape[shape.rank() - 1])),
        size_(at(shape.elements())),
        epsilon_(epsilon),
        is_unit_(by == By::length),
        is_centered_(by == By::deviation),
        scale_(scale),
        center_(center) {
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const auto set = at(set_of(index_of(i, shape)));
      if (sets_.size() <= set) sets_.resize(set + 1);
      sets_[set].push_back(at(i));
    }
  }
  Values forward(const Pass& pass, std::span<const Values> parameters, const Values& input) override {
    examples_ = at(pass.examples);
    normalized_.assign(input.size(), 0);
    inverses_.clear();
    for_each_set([&](const std::vector<std::size_t>& set, std::size_t begin) {
      double mean = 0;
      double squares = 0;
      for (const std::size_t i : set) mean += is_centered_ ? input[begin + i] / static_cast<double>(set.size()) : 0;
      for (const std::size_t i : set) squares += (input[begin + i] - mean) * (input[begin + i] - mean);
      const double spread = is_unit_ ? std::max(std::sqrt(squares), epsilon_)
                                     : std::sqrt(squares / static_cast<double>(set.size()) + epsilon_);
      inverses_.push_back(1 / spread);
      for (const std::size_t i : set) normalized_[begin + i] = (input[begin + i] - mean) / spread;
    });
    Values output = normalized_;
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (scale_) output[i] *= parameters[0][i % channels_];
      if (center_) output[i] += parameters[scale_ ? 1 : 0][i % channels_];
    }
    return output;
  }
  Values backward(std::span<const Values> parameters, std::span<Values> gradients, const Values& gradient) override {
    Values scaled = gradient;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      if (center_) gradients[scale_ ? 1 : 0][i % channels_] += gradient[i];
      if (!scale_) continue;
      gradients[0][i % channels_] += gradient[i] * normalized_[i];
      scaled[i] *= parameters[0][i % channels_];
    }
    Values dx(gradient.size());
    std::size_t next = 0;
    for_each_set([&](const std::vector<std::size_t>& set, std::size_t begin) {
      double sum = 0;
      double dot = 0;
      for (const std::size_t i : set) sum += scaled[begin + i];
      for (const std::size_t i : set) dot += scaled[begin + i] * normalized_[begin + i];
      const double count = is_unit_ ? 1 : static_cast<double>(set.size());
      const double inverse = inverses_[next++];
      for (const std::size_t i : set) {
        const double centered = scaled[begin + i] - (is_centered_ ? sum / count : 0);
        dx[begin + i] = inverse * (centered - normalized_[begin + i] * dot / count);
      }
    });
    return dx;
  }

 private:
  template <typename Visit>
  void for_each_set(const Visit& visit) const {
    for (std::size_t n = 0; n < examples_; ++n) {
      for (const auto& set : sets_) visit(set, n * size_);
    }
  }
  std::size_t channels_, size_;
  double epsilon_;
  bool is_unit_, is_centered_, scale_, center_;
  std::vector<std::vector<std::size_t>> sets_;
  std::size_t examples_ = 0;
  Values normalized_, inverses_;
};

/// y = x factor + offset with factors and offsets by element in training, which do not depend on x.
class NoiseLayer : public Layer {
 public:
  NoiseLayer(std::int64_t elements, std::uint32_t ordinal, double deviation, bool multiplies)
      : elements_(elements), ordinal_(ordinal), deviation_(deviation), multiplies_(multiplies) {}
  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    factors_.assign(input.size(), 1);
    Values output = input;
    if (!pass.training) return output;
    const GaussianNoiseSource source(pass.seed, pass.step, ordinal_);
    for (std::size_t i = 0; i < input.size(); ++i) {
      const double noise = deviation_ * source.normal(pass.batch_offset + static_cast<std::uint32_t>(i / at(elements_)),
                                                      static_cast<std::uint32_t>(i % at(elements_)));
      if (multiplies_) factors_[i] += noise;
      output[i] = input[i] * factors_[i] + (multiplies_ ? 0 : noise);
    }
    return output;
  }
  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    Values dx = gradient;
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] *= factors_[i];
    return dx;
  }

 private:
  std::int64_t elements_;
  std::uint32_t ordinal_;
  double deviation_;
  bool multiplies_;
  Values factors_;
};

/// An affine map around Dropout: a dropped element becomes the smallest value of selu, and mean 0 and variance 1 stay.
class AlphaDropoutLayer : public Layer {
 public:
  AlphaDropoutLayer(std::unique_ptr<Layer> dropout, double rate)
      : dropout_(std::move(dropout)), rate_(rate), a_(std::pow((1 - rate) * (1 + rate * limit * limit), -0.5)) {}
  Values forward(const Pass& pass, std::span<const Values> parameters, const Values& input) override {
    if (!pass.training) return input;
    Values shifted = input;
    for (double& value : shifted) value -= limit;
    Values output = dropout_->forward(pass, parameters, shifted);
    for (double& value : output) value = a_ * (value * (1 - rate_) + limit) - a_ * limit * rate_;
    return output;
  }
  Values backward(std::span<const Values> parameters, std::span<Values> gradients, const Values& gradient) override {
    Values dx = dropout_->backward(parameters, gradients, gradient);
    for (double& value : dx) value *= a_ * (1 - rate_);
    return dx;
  }

 private:
  static constexpr double limit = -1.6732632423543772 * 1.0507009873554805;
  std::unique_ptr<Layer> dropout_;
  double rate_, a_;
};

class EmbeddingLayer : public Layer {
 public:
  explicit EmbeddingLayer(const Embedding& embedding) : width_(at(embedding.output_dim)) {}
  Values forward(const Pass&, std::span<const Values> parameters, const Values& input) override {
    input_ = input;
    Values output;
    for (const double index : input) {
      const auto row = parameters[0].begin() + static_cast<std::ptrdiff_t>(index) * static_cast<std::ptrdiff_t>(width_);
      output.insert(output.end(), row, row + static_cast<std::ptrdiff_t>(width_));
    }
    return output;
  }
  Values backward(std::span<const Values>, std::span<Values> gradients, const Values& gradient) override {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradients[0][static_cast<std::size_t>(input_[i / width_]) * width_ + i % width_] += gradient[i];
    }
    return Values(input_.size());
  }

 private:
  std::size_t width_;
  Values input_;
};

/// y = scale x + shift by channel.
class AffineLayer : public Layer {
 public:
  AffineLayer(Values scale, Values shift, std::int64_t channels)
      : scale_(std::move(scale)), shift_(std::move(shift)), channels_(at(channels)) {}
  Values forward(const Pass&, std::span<const Values>, const Values& input) override {
    Values output = input;
    for (std::size_t i = 0; i < output.size(); ++i) output[i] = output[i] * of(scale_, i) + of(shift_, i);
    return output;
  }
  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    Values dx = gradient;
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] *= of(scale_, i);
    return dx;
  }

 private:
  [[nodiscard]] double of(const Values& values, std::size_t i) const { return values[i % channels_ % values.size()]; }
  Values scale_, shift_;
  std::size_t channels_;
};

/// A Normalization whose mean and variance, by channel, are weights.
class WeightedNormalizationLayer : public Layer {
 public:
  explicit WeightedNormalizationLayer(bool invert) : invert_(invert) {}
  Values forward(const Pass&, std::span<const Values> parameters, const Values& input) override {
    Values output = input;
    const std::size_t channels = parameters[0].size();
    for (std::size_t i = 0; i < output.size(); ++i) {
      const double mean = parameters[0][i % channels];
      const double deviation = std::sqrt(parameters[1][i % channels]);
      output[i] = invert_ ? mean + output[i] * deviation : (output[i] - mean) / deviation;
    }
    return output;
  }
  Values backward(std::span<const Values> parameters, std::span<Values>, const Values& gradient) override {
    Values dx = gradient;
    const Values& variance = parameters[1];
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const double deviation = std::sqrt(variance[i % variance.size()]);
      dx[i] *= invert_ ? deviation : 1 / deviation;
    }
    return dx;
  }

 private:
  bool invert_;
};

std::unique_ptr<Layer> padded(const CallShapes& shapes, std::int64_t above, std::int64_t before) {
  return moved(shapes.inputs[0], shapes.output, [=](Index index) {
    if (index.size() == 3) index[0] -= above;
    index[index.size() - 2] -= before;
    return index;
  });
}

/// Two source cells of an output cell along one axis, with their weights.
std::vector<std::pair<std::int64_t, double>> cells_of(std::int64_t to, std::int64_t output, std::int64_t size,
                                                      bool interpolates) {
  if (!interpolates) {  // TensorFlow's rounding of ties, in float
    const float place = (static_cast<float>(to) + 0.5F) * (static_cast<float>(size) / static_cast<float>(output));
    return {{std::min(static_cast<std::int64_t>(place), size - 1), 1.0}};
  }
  const double place = (static_cast<double>(to) + 0.5) * static_cast<double>(size) / static_cast<double>(output);
  const double center = place - 0.5;
  const double low = std::floor(center);
  const auto clamped = [size](double cell) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(cell), 0, size - 1);
  };
  return {{clamped(low), 1 - (center - low)}, {clamped(low + 1), center - low}};
}

}  // namespace

std::unique_ptr<Layer> make_shape_layer(const ZeroPadding2D& pad, const CallShapes& shapes) {
  return padded(shapes, pad.padding.top, pad.padding.left);
}
std::unique_ptr<Layer> make_shape_layer(const ZeroPadding1D& pad, const CallShapes& shapes) {
  return padded(shapes, 0, pad.padding.before);
}
std::unique_ptr<Layer> make_shape_layer(const Cropping2D& crop, const CallShapes& shapes) {
  return padded(shapes, -crop.cropping.top, -crop.cropping.left);
}
std::unique_ptr<Layer> make_shape_layer(const Cropping1D& crop, const CallShapes& shapes) {
  return padded(shapes, 0, -crop.cropping.before);
}

std::unique_ptr<Layer> make_shape_layer(const CenterCrop& crop, const CallShapes& shapes) {
  const Shape& input = shapes.inputs[0];
  return padded(shapes, -((input[0] - crop.height) / 2), -((input[1] - crop.width) / 2));
}

std::unique_ptr<Layer> make_shape_layer(const Resizing& resizing, const CallShapes& shapes) {
  const Shape& input = shapes.inputs[0];
  const bool interpolates = resizing.interpolation == Interpolation::bilinear;
  auto layer = std::make_unique<LinearLayer>(shapes.inputs, shapes.output);
  for (std::int64_t i = 0; i < shapes.output.elements(); ++i) {
    const Index index = index_of(i, shapes.output);
    for (const auto& [row, row_weight] : cells_of(index[0], shapes.output[0], input[0], interpolates)) {
      for (const auto& [column, weight] : cells_of(index[1], shapes.output[1], input[1], interpolates)) {
        layer->add(i, 0, element_at({row, column, index[2]}, input), row_weight * weight);
      }
    }
  }
  return layer;
}
std::unique_ptr<Layer> make_shape_layer(const UpSampling2D& upsampling, const CallShapes& shapes) {
  return make_shape_layer(Resizing(1, 1, {.interpolation = upsampling.interpolation}), shapes);
}
std::unique_ptr<Layer> make_shape_layer(const UpSampling1D& upsampling, const CallShapes& shapes) {
  return moved(shapes.inputs[0], shapes.output, [=](Index index) {
    return Index{index[0] / upsampling.size, index[1]};
  });
}
std::unique_ptr<Layer> make_shape_layer(const RepeatVector&, const CallShapes& shapes) {
  return moved(shapes.inputs[0], shapes.output, [](Index index) { return Index{index[1]}; });
}
std::unique_ptr<Layer> make_shape_layer(const Permute& permute, const CallShapes& shapes) {
  return moved(shapes.inputs[0], shapes.output, [=](Index index) {
    Index from(index.size());
    for (std::size_t axis = 0; axis < index.size(); ++axis) from[at(permute.dims[axis] - 1)] = index[axis];
    return from;
  });
}
std::unique_ptr<Layer> make_shape_layer(const Concatenate& merge, const CallShapes& shapes) {
  auto layer = std::make_unique<LinearLayer>(shapes.inputs, shapes.output);
  const std::size_t axis = merge.axis < 0 ? shapes.output.rank() - at(-merge.axis) : at(merge.axis - 1);
  std::int64_t begin = 0;
  for (std::size_t k = 0; k < shapes.inputs.size(); begin += shapes.inputs[k++][axis]) {
    for (std::int64_t i = 0; i < shapes.inputs[k].elements(); ++i) {
      Index index = index_of(i, shapes.inputs[k]);
      index[axis] += begin;
      layer->add(element_at(index, shapes.output), k, i);
    }
  }
  return layer;
}
std::unique_ptr<Layer> make_encoding(const CategoryEncoding& encoding, const CallShapes& shapes) {
  return std::make_unique<EncodingLayer>(
      encoding.output_mode, encoding.num_tokens, [](double x) { return static_cast<std::size_t>(x); }, shapes);
}
std::unique_ptr<Layer> make_encoding(const Discretization& bins, const CallShapes& shapes) {
  const auto bin_of = [boundaries = bins.bin_boundaries](double x) {
    return at(std::ranges::count_if(boundaries, [x](double boundary) { return x >= boundary; }));
  };
  return std::make_unique<EncodingLayer>(bins.output_mode, static_cast<std::int64_t>(bins.bin_boundaries.size()) + 1,
                                         bin_of, shapes);
}
std::unique_ptr<Layer> make_dot(const Dot& dot, const CallShapes& shapes) {
  return std::make_unique<DotLayer>(dot, shapes);
}
std::unique_ptr<Layer> make_shape_layer(const CustomScaleLayer& merge, const CallShapes& shapes) {
  auto layer = std::make_unique<LinearLayer>(shapes.inputs, shapes.output);
  for (std::int64_t i = 0; i < shapes.output.elements(); ++i) {
    for (std::size_t k = 0; k < 2; ++k) {
      Index index = index_of(i, shapes.output);
      for (std::size_t axis = 0; axis < index.size(); ++axis) index[axis] %= shapes.inputs[k][axis];
      layer->add(i, k, element_at(index, shapes.inputs[k]), k == 1 ? merge.scale : 1);
    }
  }
  return layer;
}
std::unique_ptr<Layer> make_weighted_layer(const PReLU&, const LayerInfo& info, const CallShapes& shapes) {
  return std::make_unique<WeightedLayer>(shapes.output, info.parameters[0].shape, true);
}
std::unique_ptr<Layer> make_weighted_layer(const LayerScale&, const LayerInfo& info, const CallShapes& shapes) {
  return std::make_unique<WeightedLayer>(shapes.output, info.parameters[0].shape, false);
}

std::unique_ptr<Layer> make_normalization(const LayerNormalization& layer, const Shape& shape) {
  const std::int64_t channels = shape[shape.rank() - 1];
  return std::make_unique<SetNormalization>(
      shape, [=](const Index& index) { return element_at(index, shape) / channels; }, layer.epsilon,
      SetNormalization::By::deviation, layer.scale, layer.center);
}
std::unique_ptr<Layer> make_normalization(const GroupNormalization& layer, const Shape& shape) {
  const std::int64_t channels = shape[shape.rank() - 1];
  const std::int64_t width = layer.groups == -1 ? 1 : channels / layer.groups;
  return std::make_unique<SetNormalization>(
      shape, [=](const Index& index) { return index.back() / width; }, layer.epsilon, SetNormalization::By::deviation,
      layer.scale, layer.center);
}
std::unique_ptr<Layer> make_normalization(const UnitNormalization&, const Shape& shape) {
  const std::int64_t channels = shape[shape.rank() - 1];
  return std::make_unique<SetNormalization>(
      shape, [=](const Index& index) { return element_at(index, shape) / channels; }, 1e-12,
      SetNormalization::By::length, false, false);
}
std::unique_ptr<Layer> make_normalization(const RMSNormalization& layer, const Shape& shape) {
  const std::int64_t channels = shape[shape.rank() - 1];
  return std::make_unique<SetNormalization>(
      shape, [=](const Index& index) { return element_at(index, shape) / channels; }, layer.epsilon,
      SetNormalization::By::root_mean_square, true, false);
}

std::unique_ptr<Layer> make_noise(const GaussianNoise& noise, std::int64_t elements, std::uint32_t ordinal) {
  return std::make_unique<NoiseLayer>(elements, ordinal, noise.stddev, false);
}
std::unique_ptr<Layer> make_noise(const GaussianDropout& noise, std::int64_t elements, std::uint32_t ordinal) {
  return std::make_unique<NoiseLayer>(elements, ordinal, std::sqrt(noise.rate / (1 - noise.rate)), true);
}

std::unique_ptr<Layer> make_alpha_dropout(std::unique_ptr<Layer> dropout, double rate) {
  return std::make_unique<AlphaDropoutLayer>(std::move(dropout), rate);
}

std::unique_ptr<Layer> make_embedding(const Embedding& embedding) {
  return std::make_unique<EmbeddingLayer>(embedding);
}

std::unique_ptr<Layer> make_affine(const Rescaling& rescaling) {
  return std::make_unique<AffineLayer>(Values{rescaling.scale}, Values{rescaling.offset}, 1);
}
std::unique_ptr<Layer> make_affine(const Normalization& normalization, const Shape& shape) {
  if (normalization.mean.empty()) return std::make_unique<WeightedNormalizationLayer>(normalization.invert);
  Values scale;
  Values shift;
  for (std::size_t i = 0; i < std::max(normalization.mean.size(), normalization.variance.size()); ++i) {
    const double mean = normalization.mean[i % normalization.mean.size()];
    const double deviation = std::sqrt(normalization.variance[i % normalization.variance.size()]);
    scale.push_back(normalization.invert ? deviation : 1 / deviation);
    shift.push_back(normalization.invert ? mean : -mean / deviation);
  }
  return std::make_unique<AffineLayer>(std::move(scale), std::move(shift), shape[shape.rank() - 1]);
}

}  // namespace lockstep::reference
