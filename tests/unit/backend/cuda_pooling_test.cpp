// CUDA's functors for pooling, direct convolutions and padding, against their definitions pixel by pixel.
#include "backend/cuda/direct_convolution_functors.hpp"
#include "backend/cuda/pooling_functors.hpp"
#include "cuda_functors.hpp"
#include "layers/window.hpp"

#include <array>
#include <functional>
#include <numeric>

using namespace lockstep;
using namespace lockstep::cuda;

namespace {

/// One combination of two pooling windows, images and channels.
struct PoolingCase {
  std::int64_t images, channels;
  Window rows, columns;

  explicit PoolingCase(RandomStream& random) {
    const auto axis = [&] {
      const int kernel = 1 + static_cast<int>(random.below(4));
      return Window{.input = kernel + static_cast<int>(random.below(6)),
                    .kernel = kernel,
                    .stride = 1 + static_cast<int>(random.below(4)),
                    .padding = random.below(2) == 0 ? Padding::valid : Padding::same};
    };
    images = 1 + random.below(3);
    channels = 1 + random.below(5);
    rows = axis();
    columns = axis();
  }

  [[nodiscard]] static Axis axis_of(const Window& window) {
    return {static_cast<int>(window.input), static_cast<int>(window.output()), static_cast<int>(window.kernel),
            static_cast<int>(window.stride), static_cast<int>(window.pad_before())};
  }
  [[nodiscard]] Pooling shape() const { return {axis_of(rows), axis_of(columns), static_cast<int>(channels)}; }
  [[nodiscard]] std::size_t x_count() const {
    return static_cast<std::size_t>(images * rows.input * columns.input * channels);
  }
  [[nodiscard]] std::size_t y_count() const {
    return static_cast<std::size_t>(images * rows.output() * columns.output() * channels);
  }

  /// Calls visit(index in y, indices in x of its window) for all windows.
  void for_each_window(const std::function<void(std::size_t, const std::vector<std::size_t>&)>& visit) const {
    std::size_t y = 0;
    for (std::int64_t n = 0; n < images; ++n) {
      for (std::int64_t i = 0; i < rows.output(); ++i) {
        for (std::int64_t j = 0; j < columns.output(); ++j) {
          for (std::int64_t c = 0; c < channels; ++c) {
            std::vector<std::size_t> pixels;
            for (std::int64_t a = 0; a < rows.kernel; ++a) {
              for (std::int64_t b = 0; b < columns.kernel; ++b) {
                const std::int64_t h = i * rows.stride - rows.pad_before() + a;
                const std::int64_t w = j * columns.stride - columns.pad_before() + b;
                if (h < 0 || h >= rows.input || w < 0 || w >= columns.input) continue;
                pixels.push_back(static_cast<std::size_t>(((n * rows.input + h) * columns.input + w) * channels + c));
              }
            }
            visit(y++, pixels);
          }
        }
      }
    }
  }
};

}  // namespace

TEST_CASE("CUDA: pooling forward and backward matches its definition") {
  for (std::uint64_t subject = 0; subject < 200; ++subject) {
    RandomStream random = stream_of(subject);
    const PoolingCase pooling(random);
    const Pooling shape = pooling.shape();
    std::vector<float> x = random_floats(random, pooling.x_count());
    const std::vector<float> dy = random_floats(random, pooling.y_count());
    const std::vector<ActivationFunction> functions = elementwise_functions();
    const ActivationFunction function = functions[random.below(functions.size())];
    for (float& value : x) value = activate(function, value);
    INFO("case " << subject << ", after " << keras_name(function));

    std::vector<double> largest(dy.size()), average(dy.size()), max_gradient(x.size()), average_gradient(x.size());
    pooling.for_each_window([&](std::size_t y, const std::vector<std::size_t>& pixels) {
      const auto argmax =
          *std::max_element(pixels.begin(), pixels.end(), [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
      largest[y] = x[argmax];
      max_gradient[argmax] += dy[y];
      for (const std::size_t pixel : pixels) {
        average[y] += x[pixel] / static_cast<double>(pixels.size());
        average_gradient[pixel] += dy[y] / static_cast<double>(pixels.size());
      }
    });
    for (std::size_t i = 0; i < x.size(); ++i) {
      max_gradient[i] = activation_gradient(function, x[i], static_cast<float>(max_gradient[i]));
      average_gradient[i] = activation_gradient(function, x[i], static_cast<float>(average_gradient[i]));
    }

    std::vector<float> y(dy.size());
    std::vector<float> dx(x.size());
    std::vector<std::uint8_t> argmaxes(dy.size());
    const bool after_relu = function == relu;
    for_each(y.size(), MaxPool<float>{shape, x.data(), y.data(), argmaxes.data(), after_relu});
    CHECK(error_of(y, largest) == 0);
    for_each(dx.size(), MaxPoolBackward<float>{shape, x.data(), dy.data(), argmaxes.data(), dx.data(),
                                               after_relu ? ActivationFunction::linear : function});
    CHECK(error_of(dx, max_gradient) < 1e-5);
    for_each(y.size(), AveragePool<float>{shape, x.data(), y.data()});
    CHECK(error_of(y, average) < 1e-5);
    for_each(dx.size(), AveragePoolBackward<float>{shape, x.data(), dy.data(), dx.data(), function});
    CHECK(error_of(dx, average_gradient) < 1e-5);
  }
}

TEST_CASE("CUDA: direct convolutions and their gradients match the definition") {
  for (std::uint64_t subject = 0; subject < 100; ++subject) {
    RandomStream random = stream_of(500 + subject);
    const auto axis = [&] {
      const int kernel = 1 + static_cast<int>(random.below(4));
      const int dilation = 1 + static_cast<int>(random.below(3));
      return Window{.input = dilation * (kernel - 1) + 1 + static_cast<int>(random.below(6)),
                    .kernel = kernel,
                    .stride = 1 + static_cast<int>(random.below(3)),
                    .dilation = dilation,
                    .padding = random.below(2) == 0 ? Padding::valid : Padding::same};
    };
    const Window rows = axis();
    const Window columns = axis();
    const int in = 1 + static_cast<int>(random.below(3));
    const int out = 1 + static_cast<int>(random.below(4));
    const auto whole = [](std::int64_t number) { return static_cast<int>(number); };
    const ConvolutionShape s{whole(rows.input),        whole(columns.input),       in,
                             whole(rows.output()),     whole(columns.output()),    out,
                             whole(rows.kernel),       whole(columns.kernel),      whole(rows.stride),
                             whole(columns.stride),    whole(rows.dilation),       whole(columns.dilation),
                             whole(rows.pad_before()), whole(columns.pad_before())};
    constexpr int images = 2;
    const auto pixels = static_cast<std::size_t>(images * s.out_height * s.out_width);
    const std::vector<float> x = random_floats(random, static_cast<std::size_t>(images * s.height * s.width * in));
    const std::vector<float> kernel =
        random_floats(random, static_cast<std::size_t>(out * s.kernel_height * s.kernel_width * in));
    const std::vector<float> bias = random_floats(random, static_cast<std::size_t>(out));
    const std::vector<float> dy = random_floats(random, pixels * static_cast<std::size_t>(out));
    std::vector<double> y(dy.size()), dx(x.size()), dk(kernel.size());
    for (int n = 0; n < images; ++n) {
      for (int i = 0; i < s.out_height; ++i) {
        for (int j = 0; j < s.out_width; ++j) {
          for (int o = 0; o < out; ++o) {
            const auto at = static_cast<std::size_t>(((n * s.out_height + i) * s.out_width + j) * out + o);
            y[at] = bias[static_cast<std::size_t>(o)];
            for (int a = 0; a < s.kernel_height; ++a) {
              for (int b = 0; b < s.kernel_width; ++b) {
                const int h = i * s.stride_height - s.above + a * s.dilation_height;
                const int w = j * s.stride_width - s.before + b * s.dilation_width;
                if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
                for (int c = 0; c < in; ++c) {
                  const auto from = static_cast<std::size_t>(((n * s.height + h) * s.width + w) * in + c);
                  const auto factor =
                      static_cast<std::size_t>(((o * s.kernel_height + a) * s.kernel_width + b) * in + c);
                  y[at] += static_cast<double>(x[from]) * kernel[factor];
                  dx[from] += static_cast<double>(dy[at]) * kernel[factor];
                  dk[factor] += static_cast<double>(dy[at]) * x[from];
                }
              }
            }
          }
        }
      }
    }
    std::vector<float> found_y(y.size()), found_dx(dx.size()), found_dk(dk.size());
    for_each(y.size(), DirectForward<float, float>{s, x.data(), kernel.data(), bias.data(), found_y.data(),
                                                   ActivationFunction::linear});
    for_each(dx.size(),
             DirectData<float>{s, x.data(), kernel.data(), dy.data(), found_dx.data(), ActivationFunction::linear});
    const DirectWeightsTerm<float> term{s, x.data(), dy.data()};
    for (std::size_t e = 0; e < dk.size(); ++e) {
      double sum = 0;
      for (std::size_t p = 0; p < pixels; ++p) sum += term(static_cast<Index>(e), static_cast<Index>(p));
      found_dk[e] = static_cast<float>(sum);
    }
    INFO("case " << subject);
    CHECK(error_of(found_y, y) < 1e-5);
    CHECK(error_of(found_dx, dx) < 1e-5);
    CHECK(error_of(found_dk, dk) < 1e-5);
  }
}

TEST_CASE("CUDA: padding and cropping round-trip") {
  std::vector<float> images(2 * 2 * 3 * 2);
  std::iota(images.begin(), images.end(), 1.0F);
  std::vector<float> padded(2 * 4 * 4 * 2);
  std::vector<float> back(images.size());
  for_each(images.size(), PadImages<float>{images.data(), padded.data(), 2, 3, 2, 4, 4, 1, 0, false});
  CHECK(padded[0] == 0.0F);
  CHECK(padded[(1 * 4 + 0) * 2] == 1.0F);                         // first image, first pixel, below the padding's row
  CHECK(padded[((1 * 4 + 2) * 4 + 2) * 2 + 1] == images.back());  // second image, last pixel
  CHECK(std::accumulate(padded.begin(), padded.end(), 0.0F) == std::accumulate(images.begin(), images.end(), 0.0F));
  for_each(images.size(), PadImages<float>{padded.data(), back.data(), 2, 3, 2, 4, 4, 1, 0, true});
  CHECK(back == images);
}
