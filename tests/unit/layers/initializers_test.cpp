// Initial values of parameters: they have the ranges and moments of Keras' formulas and depend only on their key.
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

using namespace lockstep;

namespace {

std::vector<float> values_of(Initializer initializer, Shape shape, std::uint64_t seed = 7, std::uint64_t index = 3) {
  std::vector<float> values;
  initialize({.name = "kernel", .shape = std::move(shape), .initializer = initializer}, seed, index, values);
  return values;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double largest = 0;
};

Moments moments_of(const std::vector<float>& values) {
  Moments moments;
  for (const double value : values) moments.mean += value / static_cast<double>(values.size());
  double variance = 0;
  for (const double value : values) {
    variance += (value - moments.mean) * (value - moments.mean) / static_cast<double>(values.size());
    moments.largest = std::max(moments.largest, std::abs(value));
  }
  moments.deviation = std::sqrt(variance);
  return moments;
}

}  // namespace

TEST_CASE("VarianceScaling has Keras' limits and variances") {
  struct Case {
    Initializer initializer;
    Shape shape;
    double variance;
  };
  // Fan-in and fan-out of a [3, 3, 20, 40] kernel are 180 and 360; those of [300, 100] are 300 and 100.
  const std::vector<Case> cases{{Initializer::glorot_uniform, Shape{3, 3, 20, 40}, 2.0 / 540},
                                {Initializer::glorot_uniform, Shape{300, 100}, 2.0 / 400},
                                {Initializer::glorot_normal, Shape{3, 3, 20, 40}, 2.0 / 540},
                                {Initializer::he_uniform, Shape{3, 3, 20, 40}, 2.0 / 180},
                                {Initializer::he_normal, Shape{300, 100}, 2.0 / 300},
                                {Initializer::he_normal, Shape{5000}, 2.0 / 5000}};
  for (const Case& one : cases) {
    const std::vector<float> values = values_of(one.initializer, one.shape);
    REQUIRE(static_cast<std::int64_t>(values.size()) == one.shape.elements());
    const Moments moments = moments_of(values);
    const double deviation = std::sqrt(one.variance);
    const bool uniform = one.initializer == Initializer::glorot_uniform || one.initializer == Initializer::he_uniform;
    const double limit = deviation * (uniform ? std::sqrt(3.0) : 2 / 0.87962566103423978);
    INFO("initializer " << static_cast<int>(one.initializer.kind) << " of " << one.shape.to_string());
    const double count = static_cast<double>(values.size());
    CHECK(std::abs(moments.mean) < 5 * deviation / std::sqrt(count));
    CHECK(moments.deviation == Approx(deviation).epsilon(5 / std::sqrt(count)));
    CHECK(moments.largest <= limit * (1 + 1e-6));
    CHECK(moments.largest > limit * 0.98);
  }
}

TEST_CASE("constant initializers overwrite previous values") {
  std::vector<float> values{4, 5, 6, 7, 8};
  initialize({.name = "bias", .shape = {3}, .initializer = Initializer::zeros}, 1, 1, values);
  CHECK(values == std::vector<float>{0, 0, 0});
  initialize({.name = "gamma", .shape = {2}, .initializer = Initializer::ones}, 1, 1, values);
  CHECK(values == std::vector<float>{1, 1});
}

TEST_CASE("orthogonal values are orthonormal columns, or rows where they are fewer, times the gain") {
  Initializer doubled = Initializer::orthogonal;
  doubled.first = 2;
  for (const Shape& shape : {Shape{40, 24}, Shape{24, 40}, Shape{3, 3, 4, 20}, Shape{1, 1, 5, 20}, Shape{7, 1}}) {
    const std::vector<float> values = values_of(doubled, shape);
    const auto columns = static_cast<std::size_t>(shape[shape.rank() - 1]);
    const std::size_t rows = values.size() / columns;
    const bool has_columns = rows >= columns;
    const auto element = [&](std::size_t vector, std::size_t at) {
      return static_cast<double>(has_columns ? values[at * columns + vector] : values[vector * columns + at]);
    };
    for (std::size_t i = 0; i < std::min(rows, columns); ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double product = 0;
        for (std::size_t k = 0; k < std::max(rows, columns); ++k) product += element(i, k) * element(j, k);
        CHECK(product == Approx(i == j ? 4 : 0).margin(1e-5));
      }
    }
    CHECK(values == values_of(doubled, shape));
    CHECK(values != values_of(doubled, shape, 8));
  }
  CHECK_THROWS_AS(values_of(Initializer::orthogonal, {5}), UsageError);
}

TEST_CASE("identity is a matrix with the gain on its diagonal") {
  Initializer halved = Initializer::identity;
  halved.first = 0.5;
  CHECK(values_of(halved, {2, 3}) == std::vector<float>{0.5F, 0, 0, 0, 0.5F, 0});
  CHECK_THROWS_AS(values_of(halved, {3}), UsageError);
  CHECK_THROWS_AS(values_of(halved, {1, 1, 3, 3}), UsageError);
}

TEST_CASE("initial values depend only on seed and index") {
  for (const Initializer initializer : {Initializer::glorot_uniform, Initializer::he_normal}) {
    const std::vector<float> values = values_of(initializer, {10, 10});
    CHECK(values == values_of(initializer, {10, 10}));
    CHECK(values != values_of(initializer, {10, 10}, 8));
    CHECK(values != values_of(initializer, {10, 10}, 7, 4));
    CHECK(std::ranges::adjacent_find(values) == values.end());
  }
}
