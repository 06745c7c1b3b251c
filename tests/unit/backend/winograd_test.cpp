// Our own Winograd kernels against direct convolution in double precision: every size and padding, many channels, and
// values that are large, tiny, denormal or infinite. Their bits depend on neither calls nor threads.
#include "backend/cpu/instruction_set.hpp"
#include "backend/cpu/winograd/passes.hpp"
#include "core/aligned_buffer.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

using namespace lockstep;
using namespace lockstep::winograd;

namespace {

std::vector<const KernelTable*> kernels_of_cpu() {
  std::vector<const KernelTable*> all;
  if (instruction_set_of_cpu() >= InstructionSet::avx2) all.push_back(&avx2_kernels());
  if (instruction_set_of_cpu() >= InstructionSet::avx512) all.push_back(&avx512_kernels());
  return all;
}

Geometry geometry_of(std::int64_t height, std::int64_t width, std::int64_t channels, std::int64_t out_channels,
                     std::int64_t padding) {
  return {height, width, channels, height + 2 * padding - 2, width + 2 * padding - 2, out_channels, padding, padding};
}

/// The index of a value in an image in blocks of channels.
std::size_t at(std::int64_t lanes, std::int64_t height, std::int64_t width, std::int64_t channel, std::int64_t row,
               std::int64_t column) {
  return static_cast<std::size_t>((((channel / lanes) * height + row) * width + column) * lanes + channel % lanes);
}

/// The tensors of a convolution, in float and as a direct convolution in double precision computes them.
struct Convolution {
  Convolution(const KernelTable& its_kernels, const Geometry& its_geometry, std::int64_t its_images,
              double magnitude = 1, double mean = 0)
      : kernels(its_kernels), geometry(its_geometry), images(its_images) {
    const auto draw = [&](std::int64_t count, double scale, double middle) {
      std::vector<float> values(static_cast<std::size_t>(count));
      for (float& value : values) value = static_cast<float>(scale * (middle + normal(random)));
      return values;
    };
    x = draw(images * geometry.elements(), magnitude, mean);
    weights = draw(9 * geometry.channels * geometry.out_channels, 1, 0);
    y_gradient = draw(images * geometry.out_elements(), magnitude, mean);
  }

  /// Adds every product of a direct convolution to what `add` says: add(x index, weight index, y index).
  template <typename Add>
  void for_each_product(const Add& add) const {
    const Geometry& g = geometry;
    const std::int64_t lanes = kernels.lanes;
    for (std::int64_t n = 0; n < images; ++n) {
      for (std::int64_t i = 0; i < g.out_height; ++i) {
        for (std::int64_t j = 0; j < g.out_width; ++j) {
          for (std::int64_t tap = 0; tap < 9; ++tap) {
            const std::int64_t row = i + tap / 3 - g.top;
            const std::int64_t column = j + tap % 3 - g.left;
            if (row < 0 || row >= g.height || column < 0 || column >= g.width) continue;
            for (std::int64_t c = 0; c < g.channels; ++c) {
              const std::size_t from =
                  static_cast<std::size_t>(n * g.elements()) + at(lanes, g.height, g.width, c, row, column);
              for (std::int64_t k = 0; k < g.out_channels; ++k) {
                add(from, static_cast<std::size_t>((tap * g.channels + c) * g.out_channels + k),
                    static_cast<std::size_t>(n * g.out_elements()) + at(lanes, g.out_height, g.out_width, k, i, j));
              }
            }
          }
        }
      }
    }
  }

  [[nodiscard]] std::vector<double> expected_outputs() const {
    std::vector<double> y(y_gradient.size());
    for_each_product([&](auto from, auto weight, auto to) { y[to] += double{x[from]} * double{weights[weight]}; });
    return y;
  }
  [[nodiscard]] std::vector<double> expected_input_gradients() const {
    std::vector<double> dx(x.size());
    for_each_product(
        [&](auto from, auto weight, auto to) { dx[from] += double{y_gradient[to]} * double{weights[weight]}; });
    return dx;
  }
  [[nodiscard]] std::vector<double> expected_weight_gradients() const {
    std::vector<double> dw(weights.size());
    for_each_product([&](auto from, auto weight, auto to) { dw[weight] += double{x[from]} * double{y_gradient[to]}; });
    return dw;
  }

  [[nodiscard]] std::vector<float> convolve(bool flipped, int threads = 1, std::int64_t at_once = 1000,
                                            const Epilogue& epilogue = {}) const {
    const Geometry g = flipped ? geometry.flipped() : geometry;
    const std::vector<float>& from = flipped ? y_gradient : x;
    const AlignedBuffer scratch(scratch_elements(g, threads) * sizeof(float));
    const AlignedBuffer transformed(static_cast<std::size_t>(g.weight_elements()) * sizeof(float));
    const Resources resources{kernels, scratch.as<float>().data(), threads};
    transform_weights(resources, g, weights.data(), flipped, transformed.as<float>().data());
    std::vector<float> to(static_cast<std::size_t>(images * g.out_elements()));
    for (std::int64_t n = 0; n < images; n += at_once) {
      winograd::convolve(resources, g, std::min(at_once, images - n), from.data() + n * g.elements(),
                         transformed.as<float>().data(), epilogue, to.data() + n * g.out_elements());
    }
    return to;
  }
  [[nodiscard]] std::vector<float> weight_gradients(int threads = 1, std::int64_t at_once = 1000) const {
    const AlignedBuffer scratch(scratch_elements(geometry, threads) * sizeof(float));
    const AlignedBuffer sums(static_cast<std::size_t>(geometry.weight_elements()) * sizeof(float));
    const Resources resources{kernels, scratch.as<float>().data(), threads};
    for (std::int64_t n = 0; n < images; n += at_once) {
      add_weight_gradients(resources, geometry, std::min(at_once, images - n), x.data() + n * geometry.elements(),
                           y_gradient.data() + n * geometry.out_elements(), sums.as<float>().data());
    }
    std::vector<float> dw(weights.size());
    transform_weight_gradients(resources, geometry, sums.as<float>().data(), dw.data());
    return dw;
  }

  const KernelTable& kernels;
  Geometry geometry;
  std::int64_t images;
  std::mt19937 random{1};
  std::normal_distribution<double> normal;
  std::vector<float> x;
  std::vector<float> weights;
  std::vector<float> y_gradient;
};

/// The largest error, of the largest value.
double error_of(const std::vector<float>& values, const std::vector<double>& expected) {
  REQUIRE(values.size() == expected.size());
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(double{values[i]} - expected[i]));
  }
  return error / largest;
}

void check(const Convolution& convolution, double tolerance = 1e-5) {
  const Geometry& g = convolution.geometry;
  INFO(convolution.kernels.lanes << " lanes, " << convolution.images << " images, " << g.channels << " -> "
                                 << g.out_channels << " channels, " << g.height << " x " << g.width << ", padding "
                                 << g.top);
  CHECK(error_of(convolution.convolve(false), convolution.expected_outputs()) <= tolerance);
  CHECK(error_of(convolution.convolve(true), convolution.expected_input_gradients()) <= tolerance);
  CHECK(error_of(convolution.weight_gradients(), convolution.expected_weight_gradients()) <= tolerance);
}

}  // namespace

TEST_CASE("tiles cover every result once, and compute no others from two results on") {
  for (std::int64_t height = 1; height <= 30; ++height) {
    for (std::int64_t width = 1; width <= 30; ++width) {
      TileBlock block;
      std::vector<int> covered(static_cast<std::size_t>(3 * height * width));
      std::int64_t products = 0;
      std::int64_t in_matrices = 0;
      const std::int64_t tiles = 3 * tiles_of_image(height, width);
      for (std::int64_t begin = 0; begin < tiles; begin += max_tiles_of_block) {
        block.assign(height, width, begin, std::min(begin + max_tiles_of_block, tiles));
        for (int component = 0; component < components; ++component)
          in_matrices += block.count(component / points, component % points);
        for (const Tile& tile : block.tiles()) {
          products += (tile.rows + 2) * (tile.columns + 2);
          for (std::int64_t i = 0; i < std::min<std::int64_t>(tile.rows, height); ++i) {
            for (std::int64_t j = 0; j < std::min<std::int64_t>(tile.columns, width); ++j)
              ++covered.at(static_cast<std::size_t>((tile.image * height + tile.row + i) * width + tile.column + j));
          }
        }
      }
      CHECK(std::ranges::all_of(covered, [](int count) { return count == 1; }));
      CHECK(products == 3 * products_of_image(height, width));
      CHECK(in_matrices == products);
    }
  }
  CHECK(products_of_image(8, 8) == 4 * 36);
  CHECK(products_of_image(13, 13) == 21 * 21);
}

TEST_CASE("Winograd's convolution matches direct convolution for every size and padding") {
  for (const KernelTable* kernels : kernels_of_cpu()) {
    for (std::int64_t size = 1; size <= 30; ++size) {
      for (const std::int64_t padding : {0, 1, 2}) {
        const std::int64_t width = 1 + (7 * size + padding) % 30;
        if (padding == 0 && std::min(size, width) < 3) continue;
        check(Convolution(*kernels, geometry_of(size, width, 16, 16, padding), 2));
      }
    }
    for (const std::int64_t size : {7, 11, 13, 14, 28}) {
      for (const std::int64_t padding : {0, 1})
        check(Convolution(*kernels, geometry_of(size, size, 32, 48, padding), 3));
    }
  }
}

TEST_CASE("Winograd's convolution matches direct convolution for many channels") {
  for (const KernelTable* kernels : kernels_of_cpu()) {
    for (const std::int64_t channels : {16, 48, 128, 256, 512}) {
      check(Convolution(*kernels, geometry_of(7, 6, channels, 32, 1), 2));
      check(Convolution(*kernels, geometry_of(7, 6, 32, channels, 1), 2, 1, 1));  // no mean of 0
    }
  }
}

TEST_CASE("Winograd's convolution keeps its accuracy for large and tiny values") {
  for (const KernelTable* kernels : kernels_of_cpu()) {
    for (const double magnitude : {1e4, 1e-4, 1e15}) {
      INFO(magnitude);
      check(Convolution(*kernels, geometry_of(13, 9, 32, 16, 1), 2, magnitude));
    }
    // Results near the smallest denormal number are as exact as they can be.
    const Convolution denormal(*kernels, geometry_of(9, 7, 16, 16, 1), 1, 1e-40);
    const std::vector<double> expected = denormal.expected_outputs();
    const std::vector<float> y = denormal.convolve(false);
    for (std::size_t i = 0; i < y.size(); ++i)
      CHECK(std::abs(double{y[i]} - expected[i]) <= 1000 * double{std::numeric_limits<float>::denorm_min()});
  }
}

TEST_CASE("an infinite input reaches the results of its tiles only") {
  for (const KernelTable* kernels : kernels_of_cpu()) {
    Convolution convolution(*kernels, geometry_of(12, 12, 16, 32, 1), 3);
    const std::vector<float> finite = convolution.convolve(false);
    const Geometry& g = convolution.geometry;
    convolution.x.at(static_cast<std::size_t>(g.elements()) + at(kernels->lanes, 12, 12, 3, 6, 6)) =
        std::numeric_limits<float>::infinity();
    const std::vector<float> y = convolution.convolve(false);
    for (std::int64_t image = 0; image < 3; ++image) {
      for (std::int64_t k = 0; k < g.out_channels; ++k) {
        for (std::int64_t i = 0; i < 12; ++i) {
          for (std::int64_t j = 0; j < 12; ++j) {
            const std::size_t index =
                static_cast<std::size_t>(image * g.out_elements()) + at(kernels->lanes, 12, 12, k, i, j);
            const bool reads_it = image == 1 && std::abs(i - 6) <= 1 && std::abs(j - 6) <= 1;
            const bool is_in_its_tile = image == 1 && i / 4 == 1 && j / 4 == 1;
            if (reads_it) CHECK_FALSE(std::isfinite(y[index]));
            if (!is_in_its_tile) CHECK(y[index] == finite[index]);
          }
        }
      }
    }
    const std::vector<float> dw = convolution.weight_gradients();
    CHECK_FALSE(std::isfinite(dw.at(static_cast<std::size_t>((4 * g.channels + 3) * g.out_channels))));
    CHECK(std::isfinite(dw.at(static_cast<std::size_t>((4 * g.channels + 4) * g.out_channels))));
  }
}

TEST_CASE("Winograd's bits depend on neither the images of a call nor threads") {
  for (const KernelTable* kernels : kernels_of_cpu()) {
    const Convolution convolution(*kernels, geometry_of(13, 11, 32, 48, 0), 17);
    for (const int threads : {1, 2, 3}) {
      for (const std::int64_t at_once : {1, 4, 17}) {
        INFO(threads << " threads, " << at_once << " images at once");
        CHECK(convolution.convolve(false, threads, at_once) == convolution.convolve(false));
        CHECK(convolution.convolve(true, threads, at_once) == convolution.convolve(true));
        CHECK(convolution.weight_gradients(threads, at_once) == convolution.weight_gradients());
      }
    }
  }
}

TEST_CASE("Winograd's epilogue adds biases, applies relu, and masks by another relu's output") {
  for (const KernelTable* kernels : kernels_of_cpu()) {
    const Convolution convolution(*kernels, geometry_of(7, 10, 16, 32, 1), 2);
    const Geometry& g = convolution.geometry;
    const std::vector<float> plain = convolution.convolve(false);
    std::vector<float> bias(32);
    for (std::size_t k = 0; k < bias.size(); ++k) bias[k] = static_cast<float>(k) - 16.0F;
    const std::vector<float> y = convolution.convolve(false, 1, 1000, {.bias = bias.data(), .relu = true});
    // In one call, since the mask is that of the first image.
    const std::vector<float> masked = convolution.convolve(true, 1, 1000, {.relu_output = convolution.x.data()});
    const std::vector<float> unmasked = convolution.convolve(true);
    for (std::int64_t k = 0; k < g.out_channels; ++k) {
      const std::size_t index = at(kernels->lanes, g.out_height, g.out_width, k, 5, 9);
      CHECK(y[index] == std::max(0.0F, plain[index] + bias[static_cast<std::size_t>(k)]));
    }
    for (std::size_t i = 0; i < masked.size(); ++i) CHECK(masked[i] == (convolution.x[i] > 0 ? unmasked[i] : 0.0F));
  }
}

TEST_CASE("Winograd's convolution of bfloat16 images rounds what it computes of the same values in float32") {
  for (const KernelTable* kernels : kernels_of_cpu()) {
    if (kernels->bfloat16.inputs == nullptr) continue;
    Convolution convolution(*kernels, geometry_of(13, 11, 32, 48, 1), 3);
    const auto rounded = [](const std::vector<float>& values) {
      return std::vector<BFloat16>(values.begin(), values.end());
    };
    const std::vector<BFloat16> x = rounded(convolution.x);
    const std::vector<BFloat16> y_gradient = rounded(convolution.y_gradient);
    std::ranges::copy(x, convolution.x.begin());
    std::ranges::copy(y_gradient, convolution.y_gradient.begin());
    const Geometry& g = convolution.geometry;
    const Geometry flipped = g.flipped();
    const std::size_t scratch_size = std::max(scratch_elements(g, 1), scratch_elements(flipped, 1));
    const AlignedBuffer scratch(scratch_size * sizeof(float));
    const AlignedBuffer component_weights(static_cast<std::size_t>(g.weight_elements()) * sizeof(float));
    float* const transformed = component_weights.as<float>().data();
    const Resources resources{*kernels, scratch.as<float>().data(), 1};

    std::vector<BFloat16> y(y_gradient.size());
    std::vector<float> wide(y.size());
    transform_weights(resources, g, convolution.weights.data(), false, transformed);
    convolve(resources, g, 3, x.data(), transformed, {.relu = true}, y.data());
    convolve(resources, g, 3, x.data(), transformed, {.relu = true}, wide.data());
    const std::vector<float> expected = convolution.convolve(false, 1, 1000, {.relu = true});
    CHECK(wide == expected);
    for (std::size_t i = 0; i < y.size(); ++i) CHECK(y[i].bits == BFloat16(expected[i]).bits);

    std::vector<BFloat16> x_gradient(x.size());
    transform_weights(resources, flipped, convolution.weights.data(), true, transformed);
    convolve(resources, flipped, 3, y_gradient.data(), transformed, {.relu_output = x.data()}, x_gradient.data());
    const std::vector<float> of_float = convolution.convolve(true, 1, 1000, {.relu_output = convolution.x.data()});
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(x_gradient[i].bits == BFloat16(of_float[i]).bits);

    const AlignedBuffer sums(static_cast<std::size_t>(g.weight_elements()) * sizeof(float));
    add_weight_gradients(resources, g, 3, x.data(), y_gradient.data(), sums.as<float>().data());
    std::vector<float> weight_gradients(convolution.weights.size());
    transform_weight_gradients(resources, g, sums.as<float>().data(), weight_gradients.data());
    CHECK(weight_gradients == convolution.weight_gradients());
  }
}
