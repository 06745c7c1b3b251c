// Initial values of parameters: they have the ranges and moments of Keras' formulas and depend only on their key.
#include "support/catch.hpp"

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

TEST_CASE("initial values depend only on seed and index") {
  for (const Initializer initializer : {Initializer::glorot_uniform, Initializer::he_normal}) {
    const std::vector<float> values = values_of(initializer, {10, 10});
    CHECK(values == values_of(initializer, {10, 10}));
    CHECK(values != values_of(initializer, {10, 10}, 8));
    CHECK(values != values_of(initializer, {10, 10}, 7, 4));
    CHECK(std::ranges::adjacent_find(values) == values.end());
  }
}
