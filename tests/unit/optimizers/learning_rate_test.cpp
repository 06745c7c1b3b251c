// Learning rate schedules against hand-computed values. tests/interop compares them with real Keras.
#include "support/catch.hpp"

#include <lockstep/optimizers/learning_rate.hpp>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

void check_rates(const LearningRate& rate, std::string_view name,
                 const std::vector<std::pair<std::uint64_t, double>>& expected) {
  CHECK(keras_name(rate) == name);
  CHECK(rate.is_constant() == (name == "constant"));
  for (const auto& [iteration, value] : expected) {
    INFO(name << " at " << iteration);
    CHECK(rate.at(iteration) == Approx(value).epsilon(1e-12));
  }
}

}  // namespace

TEST_CASE("a number is a constant learning rate") {
  check_rates(0.25, "constant", {{0, 0.25}, {1'000'000, 0.25}});
  CHECK(LearningRate(0.25) == LearningRate(0.25));
  CHECK_FALSE(LearningRate(0.25) == LearningRate(0.5));
}

TEST_CASE("ExponentialDecay matches its formula") {
  check_rates(ExponentialDecay({.initial_learning_rate = 0.8, .decay_steps = 10, .decay_rate = 0.25}),
              "ExponentialDecay", {{0, 0.8}, {5, 0.4}, {10, 0.2}, {20, 0.05}});
  check_rates(
      ExponentialDecay({.initial_learning_rate = 0.8, .decay_steps = 10, .decay_rate = 0.25, .staircase = true}),
      "ExponentialDecay", {{0, 0.8}, {9, 0.8}, {10, 0.2}, {19, 0.2}, {20, 0.05}});
}

TEST_CASE("PiecewiseConstantDecay changes value after its boundary") {
  check_rates(PiecewiseConstantDecay({.boundaries = {10, 20}, .values = {1, 0.5, 0.1}}), "PiecewiseConstantDecay",
              {{0, 1}, {10, 1}, {11, 0.5}, {20, 0.5}, {21, 0.1}, {1000, 0.1}});
  check_rates(PiecewiseConstantDecay({.boundaries = {2.5}, .values = {1, 0.5}}), "PiecewiseConstantDecay",
              {{2, 1}, {3, 0.5}});
}

TEST_CASE("PolynomialDecay matches its formula") {
  check_rates(PolynomialDecay({.initial_learning_rate = 0.1001, .decay_steps = 10}), "PolynomialDecay",
              {{0, 0.1001}, {5, 0.0501}, {10, 0.0001}, {11, 0.0001}});
  check_rates(PolynomialDecay({.initial_learning_rate = 1, .decay_steps = 10, .end_learning_rate = 0.5, .power = 2}),
              "PolynomialDecay", {{0, 1}, {5, 0.625}, {10, 0.5}, {25, 0.5}});
  check_rates(PolynomialDecay({.initial_learning_rate = 1, .decay_steps = 10, .end_learning_rate = 0.5, .cycle = true}),
              "PolynomialDecay", {{0, 1}, {10, 0.5}, {15, 0.625}, {20, 0.5}, {24, 0.6}});
}

TEST_CASE("InverseTimeDecay matches its formula") {
  check_rates(InverseTimeDecay({.initial_learning_rate = 1, .decay_steps = 10, .decay_rate = 2}), "InverseTimeDecay",
              {{0, 1}, {5, 0.5}, {10, 1.0 / 3}, {20, 0.2}});
  check_rates(InverseTimeDecay({.initial_learning_rate = 1, .decay_steps = 10, .decay_rate = 2, .staircase = true}),
              "InverseTimeDecay", {{9, 1}, {10, 1.0 / 3}, {19, 1.0 / 3}});
}

TEST_CASE("CosineDecay works with and without warm-up") {
  check_rates(CosineDecay({.initial_learning_rate = 0.4, .decay_steps = 12}), "CosineDecay",
              {{0, 0.4}, {4, 0.3}, {6, 0.2}, {8, 0.1}, {12, 0}, {13, 0}});
  check_rates(CosineDecay({.initial_learning_rate = 0.4, .decay_steps = 12, .alpha = 0.5}), "CosineDecay",
              {{0, 0.4}, {6, 0.3}, {12, 0.2}, {99, 0.2}});
  check_rates(
      CosineDecay(
          {.initial_learning_rate = 0.1, .decay_steps = 12, .alpha = 0.5, .warmup_target = 0.4, .warmup_steps = 6}),
      "CosineDecay", {{0, 0.1}, {2, 0.2}, {4, 0.3}, {6, 0.4}, {12, 0.3}, {18, 0.2}, {19, 0.2}});
  check_rates(CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 12, .warmup_target = 0.4}), "CosineDecay",
              {{0, 0.4}, {6, 0.2}});
  check_rates(CosineDecay({.initial_learning_rate = 0.4, .decay_steps = 12, .warmup_steps = 6}), "CosineDecay",
              {{0, 0.4}, {6, 0.2}});
}
