// The reference's layers that slide a window over an image or a sequence: convolutions and poolings.
#include "support/reference_activation.hpp"
#include "support/reference_layers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::reference {
namespace {

/// Row-major index into a batch of images [example, row, column, channel]. A sequence is an image of one row.
struct Grid {
  std::int64_t height = 1, width = 1, channels = 1;
  Grid(std::int64_t height_, std::int64_t width_, std::int64_t channels_)
      : height(height_), width(width_), channels(channels_) {}
  explicit Grid(const Shape& shape) {
    channels = shape[shape.rank() - 1];
    if (shape.rank() >= 2) width = shape[shape.rank() - 2];
    if (shape.rank() >= 3) height = shape[shape.rank() - 3];
  }
  [[nodiscard]] std::size_t operator()(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return at(((n * height + y) * width + x) * channels + c);
  }
  [[nodiscard]] std::size_t elements(std::int64_t examples) const { return at(examples * height * width * channels); }
};

Size2D image_size(Size2D size) { return size; }
Size2D image_size(Size1D size) { return {1, size.length}; }

/// The fields of a window.
struct Sliding {
  Size2D kernel = 1;
  Size2D strides = 1;
  Size2D dilation = 1;
  Padding padding = Padding::valid;
};

/// The cells of an image under the windows of a convolution or pooling, by Keras' rules for padding. Each window gives
/// a cell of the map.
class WindowGeometry {
 public:
  WindowGeometry(const Grid& image_, const Grid& map_, const Sliding& sliding)
      : image(image_), map(map_), sliding_(sliding) {
    top_ = before(image.height, map.height, sliding.kernel.height, sliding.strides.height, sliding.dilation.height);
    left_ = before(image.width, map.width, sliding.kernel.width, sliding.strides.width, sliding.dilation.width);
  }

  /// Calls visit(row, column, kernel row, kernel column) for every cell of the image that window (y, x) covers.
  template <class Visit>
  void for_each_cell(std::int64_t y, std::int64_t x, Visit visit) const {
    for (std::int64_t i = 0; i < sliding_.kernel.height; ++i) {
      for (std::int64_t j = 0; j < sliding_.kernel.width; ++j) {
        const std::int64_t row = y * sliding_.strides.height - top_ + i * sliding_.dilation.height;
        const std::int64_t column = x * sliding_.strides.width - left_ + j * sliding_.dilation.width;
        if (row >= 0 && row < image.height && column >= 0 && column < image.width) visit(row, column, i, j);
      }
    }
  }

  /// Calls visit(example, y, x) for every window.
  template <class Visit>
  void for_each_window(std::int64_t examples, Visit visit) const {
    for (std::int64_t n = 0; n < examples; ++n) {
      for (std::int64_t y = 0; y < map.height; ++y) {
        for (std::int64_t x = 0; x < map.width; ++x) visit(n, y, x);
      }
    }
  }

  Grid image, map;

 private:
  [[nodiscard]] std::int64_t before(std::int64_t input, std::int64_t output, int kernel, int stride,
                                    int dilation) const {
    const std::int64_t extent = dilation * (kernel - 1);
    if (sliding_.padding == Padding::causal) return extent;
    const std::int64_t missing = (output - 1) * stride + extent + 1 - input;
    return sliding_.padding == Padding::same && missing > 0 ? missing / 2 : 0;
  }

  Sliding sliding_;
  std::int64_t top_ = 0;
  std::int64_t left_ = 0;
};

/// The products of a convolution without bias: output += input * weight. A transposed one maps maps to images.
class Correlation {
 public:
  Correlation(const Grid& image, const Grid& map, const Sliding& sliding, std::int64_t groups, bool is_transposed)
      : windows_(image, map, sliding),
        kernel_width_(sliding.kernel.width),
        groups_(groups),
        is_transposed_(is_transposed) {}

  [[nodiscard]] const Grid& output() const { return is_transposed_ ? windows_.image : windows_.map; }

  Values forward(std::int64_t examples, const Values& weights, const Values& input) {
    input_ = input;
    examples_ = examples;
    Values sums(output().elements(examples));
    for_each_product([&](std::size_t to, std::size_t from, std::size_t w) { sums[to] += input[from] * weights[w]; });
    return sums;
  }

  /// Adds to the gradient of the weights. Returns that of the input.
  Values backward(const Values& weights, Values& weights_gradient, const Values& gradient) const {
    Values dx(input_.size());
    for_each_product([&](std::size_t to, std::size_t from, std::size_t w) {
      weights_gradient[w] += input_[from] * gradient[to];
      dx[from] += weights[w] * gradient[to];
    });
    return dx;
  }

 private:
  template <class Visit>
  void for_each_product(Visit visit) const {
    const Grid& image = windows_.image;
    const Grid& map = windows_.map;
    const std::int64_t in = image.channels / groups_;  // of a group
    const std::int64_t out = map.channels / groups_;
    windows_.for_each_window(examples_, [&](auto n, auto y, auto x) {
      windows_.for_each_cell(y, x, [&](auto row, auto column, auto i, auto j) {
        for (std::int64_t f = 0; f < map.channels; ++f) {
          for (std::int64_t c = 0; c < in; ++c) {
            const std::size_t of_image = image(n, row, column, f / out * in + c);
            const std::size_t of_map = map(n, y, x, f);
            const std::size_t weight = at(((i * kernel_width_ + j) * in + c) * map.channels + f);
            if (is_transposed_) {
              visit(of_image, of_map, weight);
            } else {
              visit(of_map, of_image, weight);
            }
          }
        }
      });
    });
  }

  WindowGeometry windows_;
  std::int64_t kernel_width_;
  std::int64_t groups_;
  bool is_transposed_;
  std::int64_t examples_ = 0;
  Values input_;
};

/// One correlation after the other, each with a kernel, then a bias and an activation.
class ConvolutionLayer : public Layer {
 public:
  ConvolutionLayer(std::vector<Correlation> correlations, bool bias, ActivationFunction activation)
      : correlations_(std::move(correlations)),
        filters_(at(correlations_.back().output().channels)),
        bias_(bias),
        activated_(activation, correlations_.back().output().channels) {}

  Values forward(const Pass& pass, std::span<const Values> parameters, const Values& input) override {
    Values z = input;
    for (std::size_t i = 0; i < correlations_.size(); ++i)
      z = correlations_[i].forward(pass.examples, parameters[i], z);
    for (std::size_t i = 0; i < z.size() && bias_; ++i) z[i] += parameters[correlations_.size()][i % filters_];
    return activated_.forward(std::move(z));
  }

  Values backward(std::span<const Values> parameters, std::span<Values> gradients, const Values& gradient) override {
    Values dz = activated_.backward(gradient);
    for (std::size_t i = 0; i < dz.size() && bias_; ++i) gradients[correlations_.size()][i % filters_] += dz[i];
    for (std::size_t i = correlations_.size(); i-- > 0;)
      dz = correlations_[i].backward(parameters[i], gradients[i], dz);
    return dz;
  }

 private:
  std::vector<Correlation> correlations_;
  std::size_t filters_;
  bool bias_;
  Activated activated_;
};

/// The gradient goes to the largest cell; among equal ones, to the first in row-major order.
class MaxPoolingLayer : public Layer {
 public:
  explicit MaxPoolingLayer(const WindowGeometry& windows) : windows_(windows) {}

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    const Grid& in = windows_.image;
    const Grid& out = windows_.map;
    inputs_ = input.size();
    Values output(out.elements(pass.examples));
    winners_.assign(output.size(), 0);
    windows_.for_each_window(pass.examples, [&](auto n, auto y, auto x) {
      for (std::int64_t c = 0; c < out.channels; ++c) {
        double largest = -std::numeric_limits<double>::infinity();
        windows_.for_each_cell(y, x, [&](auto row, auto column, auto, auto) {
          const std::size_t cell = in(n, row, column, c);
          if (input[cell] > largest) {
            largest = input[cell];
            winners_[out(n, y, x, c)] = cell;
          }
        });
        output[out(n, y, x, c)] = largest;
      }
    });
    return output;
  }

  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    Values dx(inputs_);
    for (std::size_t i = 0; i < gradient.size(); ++i) dx[winners_[i]] += gradient[i];
    return dx;
  }

 private:
  WindowGeometry windows_;
  std::size_t inputs_ = 0;
  std::vector<std::size_t> winners_;
};

/// Equal largest values of a channel share the gradient.
class GlobalMaxLayer : public Layer {
 public:
  explicit GlobalMaxLayer(const Grid& image) : pixels_(at(image.height * image.width)), channels_(at(image.channels)) {}

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    input_ = input;
    output_.assign(at(pass.examples) * channels_, -std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < input.size(); ++i) output_[pooled(i)] = std::max(output_[pooled(i)], input[i]);
    return output_;
  }

  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    Values num_largest(output_.size());
    for (std::size_t i = 0; i < input_.size(); ++i) num_largest[pooled(i)] += input_[i] == output_[pooled(i)] ? 1 : 0;
    Values dx(input_.size());
    for (std::size_t i = 0; i < dx.size(); ++i) {
      if (input_[i] == output_[pooled(i)]) dx[i] = gradient[pooled(i)] / num_largest[pooled(i)];
    }
    return dx;
  }

 private:
  [[nodiscard]] std::size_t pooled(std::size_t i) const {
    return i / (pixels_ * channels_) * channels_ + i % channels_;
  }
  std::size_t pixels_, channels_;
  Values input_, output_;
};

class AveragePoolingLayer : public Layer {
 public:
  explicit AveragePoolingLayer(const WindowGeometry& windows) : windows_(windows) {}

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    examples_ = pass.examples;
    inputs_ = input.size();
    Values output(windows_.map.elements(examples_));
    for_each_share([&](std::size_t to, std::size_t from, double share) { output[to] += share * input[from]; });
    return output;
  }

  Values backward(std::span<const Values>, std::span<Values>, const Values& gradient) override {
    Values dx(inputs_);
    for_each_share([&](std::size_t to, std::size_t from, double share) { dx[from] += share * gradient[to]; });
    return dx;
  }

 private:
  template <class Visit>
  void for_each_share(Visit visit) const {
    const Grid& in = windows_.image;
    const Grid& out = windows_.map;
    windows_.for_each_window(examples_, [&](auto n, auto y, auto x) {
      int cells = 0;
      windows_.for_each_cell(y, x, [&](auto, auto, auto, auto) { ++cells; });
      windows_.for_each_cell(y, x, [&](auto row, auto column, auto, auto) {
        for (std::int64_t c = 0; c < out.channels; ++c) visit(out(n, y, x, c), in(n, row, column, c), 1.0 / cells);
      });
    });
  }

  WindowGeometry windows_;
  std::int64_t examples_ = 0;
  std::size_t inputs_ = 0;
};

/// The stages of a convolution.
template <typename L>
std::vector<Correlation> correlations_of(const L& conv, const Grid& in, const Grid& out) {
  const Sliding sliding{image_size(conv.kernel_size), image_size(conv.strides), image_size(conv.dilation_rate),
                        conv.padding};
  constexpr bool is_separable = requires { conv.pointwise_initializer; };
  if constexpr (std::is_same_v<L, Conv2DTranspose> || std::is_same_v<L, Conv1DTranspose>) {
    return {{out, in, sliding, 1, true}};
  } else if constexpr (is_separable) {
    const Grid between(out.height, out.width, in.channels * conv.depth_multiplier);
    return {{in, between, sliding, in.channels, false}, {between, out, {}, 1, false}};
  } else if constexpr (std::is_same_v<L, DepthwiseConv2D> || std::is_same_v<L, DepthwiseConv1D>) {
    return {{in, out, sliding, in.channels, false}};
  } else {
    return {{in, out, sliding, conv.groups, false}};
  }
}

template <typename L>
constexpr bool is_max = std::is_same_v<L, MaxPooling2D> || std::is_same_v<L, MaxPooling1D> ||
                        std::is_same_v<L, GlobalMaxPooling2D> || std::is_same_v<L, GlobalMaxPooling1D>;

template <typename L>
std::unique_ptr<Layer> make_pooling(const WindowGeometry& windows) {
  if constexpr (is_max<L>) {
    return std::make_unique<MaxPoolingLayer>(windows);
  } else {
    return std::make_unique<AveragePoolingLayer>(windows);
  }
}

}  // namespace

std::unique_ptr<Layer> make_window_layer(const LayerInfo& info) {
  const Grid in(info.input_shape);
  const Grid out(info.output_shape);
  return std::visit(
      [&]<typename L>(const L& layer) -> std::unique_ptr<Layer> {
        if constexpr (requires { layer.kernel_size; }) {
          return std::make_unique<ConvolutionLayer>(correlations_of(layer, in, out), layer.use_bias, layer.activation);
        } else if constexpr (requires { layer.pool_size; }) {
          return make_pooling<L>({in, out, {image_size(layer.pool_size), image_size(layer.strides), 1, layer.padding}});
        } else if constexpr (is_max<L>) {
          return std::make_unique<GlobalMaxLayer>(in);
        } else {
          const Size2D whole(static_cast<int>(in.height), static_cast<int>(in.width));
          return make_pooling<L>({in, Grid(1, 1, in.channels), {whole, whole}});
        }
      },
      info.layer);
}

}  // namespace lockstep::reference
