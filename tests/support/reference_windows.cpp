// The reference's layers that slide a window over an image: convolution and pooling.
#include "support/reference_activation.hpp"
#include "support/reference_layers.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::reference {
namespace {

/// Row-major index into an image batch [example, row, column, channel].
struct Grid {
  std::int64_t height, width, channels;
  explicit Grid(const Shape& shape) : height(shape[0]), width(shape[1]), channels(shape[2]) {}
  [[nodiscard]] std::size_t operator()(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return at(((n * height + y) * width + x) * channels + c);
  }
};

/// The input cells under the window of a convolution or pooling, by Keras' rules for `valid` and `same`.
class WindowGeometry {
 public:
  WindowGeometry(const LayerInfo& info, Size2D kernel, Size2D strides, Size2D dilation, Padding padding)
      : in(info.input_shape), out(info.output_shape), kernel_(kernel), strides_(strides), dilation_(dilation) {
    if (padding == Padding::same) {
      top_ = before(in.height, out.height, kernel.height, strides.height, dilation.height);
      left_ = before(in.width, out.width, kernel.width, strides.width, dilation.width);
    }
  }

  /// Calls visit(row, column, kernel row, kernel column) for every cell of the input that window (y, x) covers.
  template <class Visit>
  void for_each_cell(std::int64_t y, std::int64_t x, Visit visit) const {
    for (std::int64_t i = 0; i < kernel_.height; ++i) {
      for (std::int64_t j = 0; j < kernel_.width; ++j) {
        const std::int64_t row = y * strides_.height - top_ + i * dilation_.height;
        const std::int64_t column = x * strides_.width - left_ + j * dilation_.width;
        if (row >= 0 && row < in.height && column >= 0 && column < in.width) visit(row, column, i, j);
      }
    }
  }

  /// Calls visit(example, y, x) for every window.
  template <class Visit>
  void for_each_window(std::int64_t examples, Visit visit) const {
    for (std::int64_t n = 0; n < examples; ++n) {
      for (std::int64_t y = 0; y < out.height; ++y) {
        for (std::int64_t x = 0; x < out.width; ++x) visit(n, y, x);
      }
    }
  }

  Grid in, out;

 private:
  static std::int64_t before(std::int64_t input, std::int64_t output, int kernel, int stride, int dilation) {
    const std::int64_t missing = (output - 1) * stride + dilation * (kernel - 1) + 1 - input;
    return missing > 0 ? missing / 2 : 0;
  }

  Size2D kernel_, strides_, dilation_;
  std::int64_t top_ = 0;
  std::int64_t left_ = 0;
};

class ConvolutionLayer : public Layer {
 public:
  ConvolutionLayer(const Conv2D& conv, const LayerInfo& info)
      : sliding_(info, conv.kernel_size, conv.strides, conv.dilation_rate, conv.padding),
        kernel_width_(conv.kernel_size.width),
        bias_(conv.use_bias),
        activated_(conv.activation, conv.filters) {}

  Values forward(const Pass& pass, std::span<const Values> parameters, const Values& input) override {
    const Grid& in = sliding_.in;
    const Grid& out = sliding_.out;
    input_ = input;
    examples_ = pass.examples;
    Values z(at(examples_ * out.height * out.width * out.channels));
    sliding_.for_each_window(examples_, [&](auto n, auto y, auto x) {
      for (std::int64_t f = 0; f < out.channels; ++f) {
        double sum = bias_ ? parameters[1][at(f)] : 0;
        sliding_.for_each_cell(y, x, [&](auto row, auto column, auto i, auto j) {
          for (std::int64_t c = 0; c < in.channels; ++c)
            sum += input[in(n, row, column, c)] * parameters[0][weight(i, j, c, f)];
        });
        z[out(n, y, x, f)] = sum;
      }
    });
    return activated_.forward(std::move(z));
  }

  Values backward(std::span<const Values> parameters, std::span<Values> gradients, const Values& gradient) override {
    const Grid& in = sliding_.in;
    const Grid& out = sliding_.out;
    const Values dz = activated_.backward(gradient);
    Values dx(input_.size());
    sliding_.for_each_window(examples_, [&](auto n, auto y, auto x) {
      for (std::int64_t f = 0; f < out.channels; ++f) {
        const double d = dz[out(n, y, x, f)];
        if (bias_) gradients[1][at(f)] += d;
        sliding_.for_each_cell(y, x, [&](auto row, auto column, auto i, auto j) {
          for (std::int64_t c = 0; c < in.channels; ++c) {
            gradients[0][weight(i, j, c, f)] += input_[in(n, row, column, c)] * d;
            dx[in(n, row, column, c)] += parameters[0][weight(i, j, c, f)] * d;
          }
        });
      }
    });
    return dx;
  }

 private:
  [[nodiscard]] std::size_t weight(std::int64_t i, std::int64_t j, std::int64_t c, std::int64_t f) const {
    return at(((i * kernel_width_ + j) * sliding_.in.channels + c) * sliding_.out.channels + f);
  }

  WindowGeometry sliding_;
  std::int64_t kernel_width_;
  bool bias_;
  std::int64_t examples_ = 0;
  Values input_;
  Activated activated_;
};

/// The gradient goes to the largest cell; among equal ones, to the first in row-major order.
class MaxPoolingLayer : public Layer {
 public:
  MaxPoolingLayer(const MaxPooling2D& pooling, const LayerInfo& info)
      : sliding_(info, pooling.pool_size, pooling.strides, 1, pooling.padding) {}

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    const Grid& in = sliding_.in;
    const Grid& out = sliding_.out;
    inputs_ = input.size();
    Values output(at(pass.examples * out.height * out.width * out.channels));
    winners_.assign(output.size(), 0);
    sliding_.for_each_window(pass.examples, [&](auto n, auto y, auto x) {
      for (std::int64_t c = 0; c < out.channels; ++c) {
        double largest = -std::numeric_limits<double>::infinity();
        sliding_.for_each_cell(y, x, [&](auto row, auto column, auto, auto) {
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
  WindowGeometry sliding_;
  std::size_t inputs_ = 0;
  std::vector<std::size_t> winners_;
};

class AveragePoolingLayer : public Layer {
 public:
  AveragePoolingLayer(const AveragePooling2D& pooling, const LayerInfo& info)
      : sliding_(info, pooling.pool_size, pooling.strides, 1, pooling.padding) {}

  Values forward(const Pass& pass, std::span<const Values>, const Values& input) override {
    const Grid& out = sliding_.out;
    examples_ = pass.examples;
    inputs_ = input.size();
    Values output(at(examples_ * out.height * out.width * out.channels));
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
    const Grid& in = sliding_.in;
    const Grid& out = sliding_.out;
    sliding_.for_each_window(examples_, [&](auto n, auto y, auto x) {
      int cells = 0;
      sliding_.for_each_cell(y, x, [&](auto, auto, auto, auto) { ++cells; });
      sliding_.for_each_cell(y, x, [&](auto row, auto column, auto, auto) {
        for (std::int64_t c = 0; c < out.channels; ++c) visit(out(n, y, x, c), in(n, row, column, c), 1.0 / cells);
      });
    });
  }

  WindowGeometry sliding_;
  std::int64_t examples_ = 0;
  std::size_t inputs_ = 0;
};

}  // namespace

std::unique_ptr<Layer> make_convolution(const Conv2D& conv, const LayerInfo& info) {
  return std::make_unique<ConvolutionLayer>(conv, info);
}

std::unique_ptr<Layer> make_pooling(const MaxPooling2D& pooling, const LayerInfo& info) {
  return std::make_unique<MaxPoolingLayer>(pooling, info);
}

std::unique_ptr<Layer> make_pooling(const AveragePooling2D& pooling, const LayerInfo& info) {
  return std::make_unique<AveragePoolingLayer>(pooling, info);
}

}  // namespace lockstep::reference
