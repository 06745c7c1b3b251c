// The bodies of the CUDA kernels, run in plain loops: what each index computes, against other code or double precision.
// What remains for a device is that each index runs once.
#include "backend/cpu/update.hpp"
#include "backend/cuda/channel_sums.hpp"
#include "backend/cuda/direct_convolution.hpp"
#include "backend/cuda/kernel_order.hpp"
#include "backend/cuda/losses.hpp"
#include "backend/cuda/remembered.hpp"
#include "backend/cuda/squares.hpp"
#include "backend/cuda/update_runs.hpp"
#include "backend/cuda/updates.hpp"
#include "backend/cuda/windows.hpp"
#include "core/random.hpp"
#include "nn/window.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

using namespace lockstep;
using namespace lockstep::cuda;

namespace {

template <typename Body>
void for_each(std::size_t count, const Body& body) {
  for (std::size_t i = 0; i < count; ++i) body(static_cast<Index>(i));
}

std::vector<float> random_floats(RandomStream& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = 2 * random.uniform() - 1;
  return values;
}

RandomStream stream_of(std::uint64_t subject) { return {7, RandomPurpose::test, subject}; }

/// The largest difference, relative to the largest expected value.
template <typename Expected>
double error_of(const std::vector<float>& found, const std::vector<Expected>& expected) {
  REQUIRE(found.size() == expected.size());
  double error = 0;
  double scale = 1e-30;
  for (std::size_t i = 0; i < found.size(); ++i) {
    error = std::max(error, std::abs(found[i] - static_cast<double>(expected[i])));
    scale = std::max(scale, std::abs(static_cast<double>(expected[i])));
  }
  return error / scale;
}

constexpr std::array all_functions{ActivationFunction::linear, ActivationFunction::relu, ActivationFunction::sigmoid,
                                   ActivationFunction::tanh};

/// One convention of two pooling axes, images and channels.
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

  /// visit(y's place, x's places in its window): by definition, cell by cell.
  void for_each_window(const std::function<void(std::size_t, const std::vector<std::size_t>&)>& visit) const {
    std::size_t y = 0;
    for (std::int64_t n = 0; n < images; ++n) {
      for (std::int64_t i = 0; i < rows.output(); ++i) {
        for (std::int64_t j = 0; j < columns.output(); ++j) {
          for (std::int64_t c = 0; c < channels; ++c) {
            std::vector<std::size_t> cells;
            for (std::int64_t a = 0; a < rows.kernel; ++a) {
              for (std::int64_t b = 0; b < columns.kernel; ++b) {
                const std::int64_t h = i * rows.stride - rows.pad_before() + a;
                const std::int64_t w = j * columns.stride - columns.pad_before() + b;
                if (h < 0 || h >= rows.input || w < 0 || w >= columns.input) continue;
                cells.push_back(static_cast<std::size_t>(((n * rows.input + h) * columns.input + w) * channels + c));
              }
            }
            visit(y++, cells);
          }
        }
      }
    }
  }
};

}  // namespace

TEST_CASE("CUDA: activations and their derivatives agree with differences") {
  for (const ActivationFunction function : all_functions) {
    for (const float x : {-2.5F, -0.3F, 0.2F, 1.7F}) {
      const double h = 1e-3;
      const double slope = (activate(function, static_cast<float>(x + h)) -
                            static_cast<double>(activate(function, static_cast<float>(x - h)))) /
                           (2 * h);
      INFO(name_of(function) << " at " << x);
      CHECK(through(function, activate(function, x), 3.0F) == Approx(3 * slope).margin(2e-3));
    }
  }
  CHECK(through(relu, 0.0F, 1.0F) == 0.0F);  // as on the CPU
}

TEST_CASE("CUDA: examples are gathered by number, bytes scaled, in both types") {
  const std::vector<std::uint8_t> bytes{0, 51, 102, 153, 204, 255};
  const std::vector<float> floats{0, 1, 2, 3, 4, 5};
  const std::array<std::uint32_t, 3> examples{2, 0, 2};
  StepArguments arguments{.inputs = bytes.data(), .examples = examples.data()};
  std::vector<float> found(6);
  for_each(6, Gather<std::uint8_t, float>{&arguments, found.data(), 2, 255, 1, 0});
  CHECK(found == std::vector<float>{0.8F, 1, 0, 0.2F, 0.8F, 1});
  arguments.inputs = floats.data();
  for_each(6, Gather<float, float>{&arguments, found.data(), 2, 1, 1, 0});
  CHECK(found == std::vector<float>{4, 5, 0, 1, 4, 5});
  for_each(6, Gather<float, float>{&arguments, found.data(), 2, 1, 0.5F, -1});
  CHECK(found == std::vector<float>{1, 1.5F, -1, -0.5F, 1, 1.5F});
  std::vector<BFloat16> low(6);
  for_each(6, Gather<float, BFloat16>{&arguments, low.data(), 2, 1, 1, 0});
  CHECK(static_cast<float>(low[1]) == 5.0F);
}

TEST_CASE("CUDA: pooling forward and backward, against its definition") {
  for (std::uint64_t subject = 0; subject < 200; ++subject) {
    RandomStream random = stream_of(subject);
    const PoolingCase pooling(random);
    const Pooling shape = pooling.shape();
    std::vector<float> x = random_floats(random, pooling.x_count());
    const std::vector<float> dy = random_floats(random, pooling.y_count());
    const ActivationFunction function = all_functions[random.below(4)];
    for (float& value : x) value = activate(function, value);
    INFO("case " << subject << ", after " << name_of(function));

    std::vector<double> largest(dy.size()), average(dy.size()), max_gradient(x.size()), average_gradient(x.size());
    pooling.for_each_window([&](std::size_t y, const std::vector<std::size_t>& cells) {
      const auto winner =
          *std::max_element(cells.begin(), cells.end(), [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
      largest[y] = x[winner];
      max_gradient[winner] += dy[y];
      for (const std::size_t cell : cells) {
        average[y] += x[cell] / static_cast<double>(cells.size());
        average_gradient[cell] += dy[y] / static_cast<double>(cells.size());
      }
    });
    for (std::size_t i = 0; i < x.size(); ++i) {
      max_gradient[i] = through(function, x[i], static_cast<float>(max_gradient[i]));
      average_gradient[i] = through(function, x[i], static_cast<float>(average_gradient[i]));
    }

    std::vector<float> y(dy.size());
    std::vector<float> dx(x.size());
    std::vector<std::uint8_t> winners(dy.size());
    const bool after_relu = function == relu;
    for_each(y.size(), MaxPool<float>{shape, x.data(), y.data(), winners.data(), after_relu});
    CHECK(error_of(y, largest) == 0);
    for_each(dx.size(), MaxPoolBackward<float>{shape, x.data(), dy.data(), winners.data(), dx.data(),
                                               after_relu ? ActivationFunction::linear : function});
    CHECK(error_of(dx, max_gradient) < 1e-5);
    for_each(y.size(), AveragePool<float>{shape, x.data(), y.data()});
    CHECK(error_of(y, average) < 1e-5);
    for_each(dx.size(), AveragePoolBackward<float>{shape, x.data(), dy.data(), dx.data(), function});
    CHECK(error_of(dx, average_gradient) < 1e-5);
  }
}

TEST_CASE("CUDA: direct convolutions, against the definition, and gradients as its transposes") {
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

TEST_CASE("CUDA: Dropout takes the decisions of the mask, forward and backward") {
  constexpr Index elements = 11;
  constexpr Index rows = 5;
  RandomStream random = stream_of(1);
  const std::vector<float> x = random_floats(random, rows * elements);
  const StepArguments arguments{.seed = 9, .step = (1ULL << 33U) + 3, .first_place = 1000};
  const DropoutMask mask(9, arguments.step, 4, 0.3F);
  std::vector<float> y(x.size());
  std::vector<float> dx(x.size());
  for_each(rows * 3, DropQuad<float>{&arguments, x.data(), y.data(), nullptr, elements, 3, 4, 0.3F, relu});
  for_each(rows * 3, DropQuad<float>{&arguments, x.data(), dx.data(), x.data(), elements, 3, 4, 0.3F, relu});
  std::size_t dropped = 0;
  for (Index row = 0; row < rows; ++row) {
    for (Index e = 0; e < elements; ++e) {
      const std::size_t at = row * elements + e;
      const float expected = mask.keep(1000 + row, e) ? x[at] * mask.scale() : 0.0F;
      CHECK(y[at] == expected);
      CHECK(dx[at] == (x[at] > 0 ? expected : 0.0F));
      dropped += mask.keep(1000 + row, e) ? 0 : 1;
    }
  }
  CHECK(dropped > 0);
  CHECK(dropped < x.size());
}

TEST_CASE("CUDA: softmax and its gradient") {
  constexpr Index channels = 6;
  RandomStream random = stream_of(2);
  const std::vector<float> x = random_floats(random, 2 * channels);
  const std::vector<float> dy = random_floats(random, 2 * channels);
  std::vector<float> y(x.size());
  std::vector<float> dx(x.size());
  for_each(2, SoftmaxRow<float>{x.data(), y.data(), channels});
  for_each(2,
           SoftmaxRowBackward<float>{x.data(), y.data(), dy.data(), dx.data(), channels, ActivationFunction::linear});
  const auto objective = [&](std::vector<double> z, std::size_t row) {
    double sum = 0;
    double weighted = 0;
    for (Index c = 0; c < channels; ++c) sum += std::exp(z[row * channels + c]);
    for (Index c = 0; c < channels; ++c) {
      weighted += std::exp(z[row * channels + c]) / sum * dy[row * channels + c];
    }
    return weighted;
  };
  std::vector<double> expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::vector<double> above(x.begin(), x.end());
    std::vector<double> below(x.begin(), x.end());
    above[i] += 1e-5;
    below[i] -= 1e-5;
    expected[i] = (objective(above, i / channels) - objective(below, i / channels)) / 2e-5;
  }
  CHECK(std::accumulate(y.begin(), y.begin() + channels, 0.0) == Approx(1.0));
  CHECK(error_of(dx, expected) < 1e-5);
}

TEST_CASE("CUDA: losses, their hits and gradients, against double precision") {
  constexpr Index count = 5;
  constexpr std::size_t rows = 7;
  RandomStream random = stream_of(3);
  std::vector<float> shares(rows * count);
  std::vector<std::int32_t> classes(rows);
  std::vector<std::uint32_t> examples(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    classes[r] = static_cast<std::int32_t>(random.below(count));
    examples[r] = random.below(rows);
    float sum = 0;
    for (Index k = 0; k < count; ++k) sum += shares[r * count + k] = random.uniform();
    for (Index k = 0; k < count; ++k) shares[r * count + k] /= sum;
  }
  for (const LossKind kind :
       {LossKind::sparse_crossentropy, LossKind::categorical_crossentropy, LossKind::mean_squared_error}) {
    for (const bool from_logits : {true, false}) {
      std::vector<float> outputs = random_floats(random, rows * count);
      if (!from_logits) {
        for (float& output : outputs) output = 0.5F + 0.4F * output;
      }
      const bool sparse = kind == LossKind::sparse_crossentropy;
      const StepArguments arguments{
          .targets = sparse ? static_cast<const void*>(classes.data()) : static_cast<const void*>(shares.data()),
          .examples = examples.data(),
          .gradient_scale = 0.125F};
      const auto target = [&](std::size_t row, Index k) -> double {
        if (sparse) return classes[examples[row]] == static_cast<std::int32_t>(k) ? 1 : 0;
        return shares[examples[row] * count + k];
      };
      const auto loss_of = [&](const std::vector<double>& z, std::size_t row) {
        double loss = 0;
        double sum = 0;
        for (Index k = 0; k < count; ++k) sum += std::exp(z[row * count + k]);
        for (Index k = 0; k < count; ++k) {
          const double output = z[row * count + k];
          if (kind == LossKind::mean_squared_error) {
            loss += (output - target(row, k)) * (output - target(row, k)) / count;
          } else {
            loss -= target(row, k) * (from_logits ? output - std::log(sum) : std::log(output));
          }
        }
        return loss;
      };
      std::vector<float> gradients(outputs.size());
      const LossRow body{
          &arguments, kind, from_logits, outputs.data(), gradients.data(), count, ActivationFunction::linear};
      const std::vector<double> z(outputs.begin(), outputs.end());
      std::vector<double> expected(outputs.size());
      for (std::size_t r = 0; r < rows; ++r) {
        const RowResult result = body(static_cast<Index>(r));
        CHECK(result.loss == Approx(loss_of(z, r)).epsilon(1e-5));
        const auto largest = std::max_element(outputs.begin() + static_cast<std::ptrdiff_t>(r * count),
                                              outputs.begin() + static_cast<std::ptrdiff_t>((r + 1) * count));
        Index wanted = 0;
        for (Index k = 1; k < count; ++k) wanted = target(r, k) > target(r, wanted) ? k : wanted;
        const auto place = static_cast<Index>(largest - outputs.begin()) - static_cast<Index>(r) * count;
        CHECK(result.correct == (place == wanted ? 1.0F : 0.0F));
        for (Index k = 0; k < count; ++k) {
          std::vector<double> above = z;
          std::vector<double> below = z;
          above[r * count + k] += 1e-5;
          below[r * count + k] -= 1e-5;
          expected[r * count + k] = 0.125 * (loss_of(above, r) - loss_of(below, r)) / 2e-5;
        }
      }
      INFO("kind " << static_cast<int>(kind) << (from_logits ? ", from logits" : ""));
      CHECK(error_of(gradients, expected) < 1e-5);
    }
  }
}

TEST_CASE("CUDA: BatchNormalization over segments of sums, against double precision") {
  constexpr Index channels = 3;
  constexpr std::size_t pixels = 50;
  constexpr Index segments = 4;
  constexpr float epsilon = 1e-3F;
  RandomStream random = stream_of(4);
  std::vector<float> x = random_floats(random, pixels * channels);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.0F * x[i] + 100.0F * static_cast<float>(i % channels);
  const std::vector<float> dy = random_floats(random, pixels * channels);
  const std::vector<float> gamma = random_floats(random, channels);
  const std::vector<float> beta = random_floats(random, channels);
  std::vector<Pair> partials(segments * channels);
  const auto sum = [&](const auto& terms) {  // as channel_sums.cuh does, whatever goes to which segment
    std::fill(partials.begin(), partials.end(), Pair{});
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      for (Index c = 0; c < channels; ++c) {
        const Pair term = terms(pixel * channels + c, c);
        Pair& part = partials[(pixel % segments) * channels + c];
        part.first += term.first;
        part.second += term.second;
      }
    }
    return PartialSums{partials.data(), segments, channels};
  };

  std::vector<float> mean(channels), inverse(channels), moving_mean(channels, 5.0F), moving_variance(channels, 5.0F);
  const StepArguments arguments{.replica_share = 0.5F};
  const Statistics statistics{mean.data(), inverse.data()};
  const PartialSums moments = sum(MomentTerms<float>{x.data()});
  FinishMoments finish{moments, pixels, epsilon, statistics, &arguments, moving_mean.data(), moving_variance.data(),
                       true};
  for_each(channels, finish);
  finish.first_replica = false;
  for_each(channels, finish);  // as if a second replica were its twin

  std::vector<float> y(x.size()), dx(x.size()), d_gamma(channels), d_beta(channels), means(channels),
      projected(channels);
  for_each(x.size(), Normalise<float>{x.data(), y.data(), mean.data(), inverse.data(), nullptr, gamma.data(),
                                      beta.data(), epsilon, channels, ActivationFunction::linear});
  const PartialSums projections = sum(ProjectionTerms<float>{x.data(), dy.data(), statistics});
  for_each(channels,
           FinishProjection{projections, pixels, d_gamma.data(), d_beta.data(), means.data(), projected.data(), true});
  for_each(x.size(), Propagate<float>{x.data(), dy.data(), dx.data(), statistics, gamma.data(), means.data(),
                                      projected.data(), channels, ActivationFunction::linear});

  std::vector<double> expected_y(x.size()), expected_dx(x.size());
  for (Index c = 0; c < channels; ++c) {
    double m = 0;
    double v = 0;
    double g = 0;
    double p = 0;
    for (std::size_t i = c; i < x.size(); i += channels) m += x[i] / static_cast<double>(pixels);
    for (std::size_t i = c; i < x.size(); i += channels) v += (x[i] - m) * (x[i] - m) / static_cast<double>(pixels);
    const double s = 1 / std::sqrt(v + epsilon);
    for (std::size_t i = c; i < x.size(); i += channels) {
      g += dy[i];
      p += dy[i] * (x[i] - m) * s;
      expected_y[i] = (x[i] - m) * s * gamma[c] + beta[c];
    }
    for (std::size_t i = c; i < x.size(); i += channels) {
      expected_dx[i] = gamma[c] * s * (dy[i] - g / pixels - (x[i] - m) * s * p / pixels);
    }
    CHECK(moving_mean[c] == Approx(m).epsilon(1e-5).margin(1e-5));
    CHECK(moving_variance[c] == Approx(v).epsilon(1e-5));
    CHECK(d_gamma[c] == Approx(p).epsilon(1e-4));
    CHECK(d_beta[c] == Approx(g).epsilon(1e-5));
  }
  CHECK(error_of(y, expected_y) < 1e-4);  // values about 200 have lost that much before they were normalised
  CHECK(error_of(dx, expected_dx) < 1e-4);

  std::vector<float> inferred(x.size());
  for_each(x.size(), Normalise<float>{x.data(), inferred.data(), mean.data(), nullptr, moving_variance.data(),
                                      gamma.data(), beta.data(), epsilon, channels, ActivationFunction::linear});
  CHECK(error_of(inferred, expected_y) < 1e-4);
}

TEST_CASE("CUDA: optimizers take the CPU's steps") {
  constexpr std::size_t elements = 64;
  std::vector<Optimizer> optimizers{SGD({.learning_rate = 0.1}), SGD({.learning_rate = 0.1, .momentum = 0.9}),
                                    SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}),
                                    Adam({.learning_rate = 0.01}), AdamW({.learning_rate = 0.01, .weight_decay = 0.1})};
  const CosineDecay schedule({.initial_learning_rate = 0.1, .decay_steps = 15});
  optimizers.emplace_back(SGD({.learning_rate = schedule, .momentum = 0.9}));
  optimizers.emplace_back(AdamW({.learning_rate = schedule, .weight_decay = 0.1}));
  optimizers.emplace_back(RMSprop({.learning_rate = schedule}));
  for (const double momentum : {0.0, 0.8}) {
    for (const bool centered : {false, true}) {
      optimizers.emplace_back(RMSprop({.learning_rate = 0.01, .momentum = momentum, .centered = centered}));
    }
  }
  Graph graph;
  graph.parameters.push_back({.name = "w", .info = {"w", Shape{elements}, Initializer::zeros}, .storage = elements});
  for (std::size_t which = 0; which < optimizers.size(); ++which) {
    const Optimizer& optimizer = optimizers[which];
    INFO("optimizer " << which << ", " << name_of(optimizer));
    RandomStream random = stream_of(10 + which);
    std::vector<float> weights = random_floats(random, elements);
    std::vector<float> our_weights = weights;
    std::vector<float> slots(3 * elements);
    std::vector<float> our_slots(3 * elements);
    std::vector<std::uint16_t> low(elements);
    std::vector<std::uint16_t> our_low(elements);
    const UpdateKind kind = kind_of(optimizer);
    const auto* rms = std::get_if<RMSprop>(&optimizer);
    const bool second = kind == UpdateKind::adam || (rms != nullptr && rms->momentum > 0);
    const bool average = rms != nullptr && rms->centered;
    for (std::uint64_t iteration = 1; iteration <= 20; ++iteration) {
      std::vector<float> gradients = random_floats(random, elements);
      const float* source = gradients.data();
      const Arenas arenas{gradients, weights, slots, low, elements};
      update_share(graph, arenas, {0, elements, {&source, 1}}, optimizer, iteration, 1);
      const StepArguments arguments{.optimizer = scalars_of(optimizer, iteration)};
      const auto slot = [&](bool there, std::size_t number) {
        return there ? our_slots.data() + number * elements : nullptr;
      };
      for_each(elements,
               UpdateElement{&arguments, kind, gradients.data(), our_weights.data(), slot(kind != UpdateKind::sgd, 0),
                             slot(second, 1), slot(average, second ? 2 : 1), our_low.data()});
    }
    CHECK(error_of(our_weights, weights) < 1e-5);
    if (slots_of(optimizer) > 0) CHECK(error_of(our_slots, slots) < 1e-5);
    for (std::size_t i = 0; i < elements; ++i) CHECK(our_low[i] == BFloat16(our_weights[i]).bits);
  }
}

TEST_CASE("CUDA: gradients are clipped by value as on the CPU") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gradients{0.0F, -0.0F, 0.25F, -0.25F, 3.0F, -3.0F, infinity, -infinity, std::nanf("")};
  const std::size_t elements = gradients.size();
  const SGD sgd({.learning_rate = 1, .clipvalue = 0.25});
  std::vector<float> weights(elements, 1.0F);
  std::vector<float> our_weights = weights;
  Graph graph;
  graph.parameters.push_back({.name = "w", .info = {"w", Shape{9}, Initializer::zeros}, .storage = elements});
  std::vector<float> copy = gradients;
  const float* source = gradients.data();
  update_share(graph, {copy, weights, {}, {}, elements}, {0, elements, {&source, 1}}, sgd, 1, 1);
  const StepArguments arguments{.optimizer = scalars_of(sgd, 1)};
  for_each(elements, UpdateElement{.arguments = &arguments,
                                   .kind = UpdateKind::sgd,
                                   .gradients = gradients.data(),
                                   .weights = our_weights.data(),
                                   .slot_0 = nullptr,
                                   .momentum_slot = nullptr,
                                   .average_slot = nullptr,
                                   .low_precision = nullptr,
                                   .bound = 0.25F});
  CHECK(std::isnan(weights.back()));
  CHECK(std::isnan(our_weights.back()));
  weights.pop_back();
  our_weights.pop_back();
  CHECK(our_weights == weights);
}

TEST_CASE("CUDA: squares of gradients, added part by part, become the scales of a definition") {
  // Sizes around a row of lanes; the second gradient comes in two parts, as chunks of a Dense kernel do.
  const std::vector<std::vector<std::size_t>> sizes{{1}, {700, 33}, {32}, {31}, {5000}};
  constexpr double bound = 5;
  std::vector<double> lanes(sizes.size() * square_lanes);
  std::vector<double> squares(sizes.size());
  std::vector<float> scales(sizes.size());
  RandomStream random = stream_of(21);
  for (int step = 0; step < 3; ++step) {  // what one step leaves must not go into the next
    std::vector<double> norms;
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      double sum = 0;
      for (const std::size_t count : sizes[p]) {
        const std::vector<float> gradients = random_floats(random, count);
        for (const float g : gradients) sum += static_cast<double>(g) * g;
        // As add_terms does on the device: some segments, each with its own rows.
        constexpr Index segments = 3;
        const auto rows = static_cast<Index>((count + square_lanes - 1) / square_lanes);
        std::vector<Pair> partials(std::size_t{segments} * square_lanes);
        const SquareTerms terms{gradients.data(), count};
        for (Index row = 0; row < rows; ++row) {
          for (Index lane = 0; lane < square_lanes; ++lane) {
            const Pair term = terms(std::size_t{row} * square_lanes + lane, lane);
            partials[std::size_t{row % segments} * square_lanes + lane].first += term.first;
          }
        }
        for_each(square_lanes, AddLane{{partials.data(), segments, square_lanes}, lanes.data() + p * square_lanes});
      }
      norms.push_back(std::sqrt(sum));
    }
    for_each(sizes.size(), TakeLanes{lanes.data(), squares.data()});
    for (const bool together : {false, true}) {
      for_each(sizes.size(),
               FindScale{squares.data(), scales.data(), static_cast<Index>(sizes.size()), bound, together});
      const double all = std::hypot(norms[0], norms[1], std::hypot(norms[2], norms[3], norms[4]));
      for (std::size_t p = 0; p < sizes.size(); ++p) {
        const double norm = together ? all : norms[p];
        CHECK(scales[p] == Approx(norm <= bound ? 1.0 : bound / norm).epsilon(1e-6));
      }
      CHECK(scales[0] == (together ? scales[4] : 1.0F));
    }
  }
  const float huge = 1e30F;  // whose square no float holds
  CHECK(SquareTerms{&huge, 1}(0, 0).first == Approx(1e60));
  CHECK(SquareTerms{&huge, 1}(1, 1).first == 0.0);
  squares = {std::nan(""), 1.0, 0.0};
  for_each(3, FindScale{squares.data(), scales.data(), 3, bound, false});
  CHECK(std::isnan(scales[0]));
  CHECK(scales[1] == 1.0F);
  CHECK(scales[2] == 1.0F);
  for_each(3, FindScale{squares.data(), scales.data(), 3, bound, true});
  CHECK(std::isnan(scales[1]));
}

TEST_CASE("CUDA: a share is cut where the rule changes") {
  Graph graph;
  const auto add = [&](std::size_t offset, std::size_t storage, UpdateRule rule, float momentum) {
    ParameterSpec parameter;
    parameter.offset = offset;
    parameter.storage = storage;
    parameter.rule = rule;
    parameter.momentum = momentum;
    graph.parameters.push_back(parameter);
  };
  add(64, 10, UpdateRule::moving_average, 0.9F);
  add(16, 20, UpdateRule::optimizer, 0);
  add(48, 16, UpdateRule::optimizer, 0);
  add(0, 16, UpdateRule::assign, 0);
  const UpdateRun metrics{0, 16, UpdateRule::assign, 0, 3};
  const UpdateRun statistics{64, 74, UpdateRule::moving_average, 0.9F, 0};
  CHECK(runs_of(graph, 0, 80) == std::vector<UpdateRun>{metrics, {16, 64, UpdateRule::optimizer, 0, 1}, statistics});
  CHECK(runs_of(graph, 20, 60) == std::vector<UpdateRun>{{20, 60, UpdateRule::optimizer, 0, 1}});
  CHECK(runs_of(graph, 36, 48).empty());  // padding only
  const std::vector<UpdateRun> apart{
      metrics, {16, 36, UpdateRule::optimizer, 0, 1}, {48, 64, UpdateRule::optimizer, 0, 2}, statistics};
  CHECK(runs_of(graph, 0, 80, true) == apart);
}

TEST_CASE("CUDA: what was chosen for a problem is not chosen again") {
  Remembered<int> choices;
  int made = 0;
  const auto of = [&](const Problem& problem) { return choices.of(problem, [&] { return ++made; }); };
  CHECK(of({1, 2}) == 1);
  CHECK(of({2, 1}) == 2);
  CHECK(of({1, 2, 0}) == 3);
  CHECK(of({1, 2}) == 1);
  CHECK(made == 3);
}

TEST_CASE("CUDA: kernels change their order and come back") {
  const Shape shape{2, 3, 4, 5};
  std::vector<float> keras(120);
  std::iota(keras.begin(), keras.end(), 0.0F);
  std::vector<float> ours(120);
  std::vector<float> back(120);
  to_cudnn_order(shape, keras, ours);
  // out 3, row 1, column 2, in 1
  CHECK(ours[((3 * 2 + 1) * 3 + 2) * 4 + 1] == keras[((1 * 3 + 2) * 4 + 1) * 5 + 3]);
  to_keras_order(shape, ours, back);
  CHECK(back == keras);
}

TEST_CASE("CUDA: images go into a frame and out of it") {
  std::vector<float> images(2 * 2 * 3 * 2);
  std::iota(images.begin(), images.end(), 1.0F);
  std::vector<float> framed(2 * 4 * 4 * 2);
  std::vector<float> back(images.size());
  for_each(images.size(), Frame<float>{images.data(), framed.data(), 2, 3, 2, 4, 4, 1, 0, false});
  CHECK(framed[0] == 0.0F);
  CHECK(framed[(1 * 4 + 0) * 2] == 1.0F);                         // first image, first cell, below the frame's row
  CHECK(framed[((1 * 4 + 2) * 4 + 2) * 2 + 1] == images.back());  // second image, last cell
  CHECK(std::accumulate(framed.begin(), framed.end(), 0.0F) == std::accumulate(images.begin(), images.end(), 0.0F));
  for_each(images.size(), Frame<float>{framed.data(), back.data(), 2, 3, 2, 4, 4, 1, 0, true});
  CHECK(back == images);
}

TEST_CASE("CUDA: what a library lacks is finished: bias, activation, change of type") {
  const std::vector<float> bias{1, -10};
  const std::vector<float> from{1, 2, 3, 40};
  std::vector<float> to(4);
  for_each(4, Finish<float, float>{from.data(), to.data(), bias.data(), 2, relu});
  CHECK(to == std::vector<float>{2, 0, 4, 30});
  std::vector<BFloat16> low(4);
  for_each(4, Finish<float, BFloat16>{from.data(), low.data(), nullptr, 2, ActivationFunction::linear});
  CHECK(static_cast<float>(low[3]) == 40.0F);
  std::vector<float> gradient{1, 1, 1, 1};
  const std::vector<float> x{-1, -1, 5, -5};
  for_each(2, PassBackColumns<float>{x.data(), gradient.data(), 1, 1, 2, relu});  // the second column of two rows
  CHECK(gradient == std::vector<float>{1, 0, 1, 0});
  for_each(4, PassBack<float>{x.data(), from.data(), to.data(), relu});
  CHECK(to == std::vector<float>{0, 0, 3, 0});
}
