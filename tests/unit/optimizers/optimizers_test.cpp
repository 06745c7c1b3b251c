// Names, slots and ranges of optimizers; names of losses and activations.
#include "support/optimizers.hpp"
#include "optimizers/optimizer_registry.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/activation.hpp>
#include <lockstep/losses/losses.hpp>
#include <lockstep/optimizers/optimizers.hpp>

#include <array>
#include <limits>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

using namespace lockstep;

namespace {

void check_refused(const Optimizer& optimizer, const std::vector<std::string>& parts) {
  try {
    check(optimizer);
    FAIL("should have been refused: " << parts.front());
  } catch (const UsageError& error) {
    const std::string message = error.what();
    for (const std::string& part : parts) {
      INFO("looking for \"" << part << "\" in: " << message);
      CHECK(message.find(part) != std::string::npos);
    }
  }
}

}  // namespace

TEST_CASE("classes are found by their Keras names") {
  CHECK(keras_name(Optimizer{SGD()}) == "SGD");
  CHECK(keras_name(Optimizer{Adam()}) == "Adam");
  CHECK(keras_name(Optimizer{AdamW()}) == "AdamW");
  CHECK(keras_name(Optimizer{RMSprop()}) == "RMSprop");
  CHECK(keras_name(Optimizer{Lion()}) == "Lion");
  CHECK(keras_name(Optimizer{Nadam()}) == "Nadam");
  CHECK(keras_name(Loss{SparseCategoricalCrossentropy()}) == "sparse_categorical_crossentropy");
  CHECK(keras_name(Loss{CategoricalCrossentropy()}) == "categorical_crossentropy");
  CHECK(keras_name(Loss{MeanSquaredError()}) == "mean_squared_error");
  CHECK(keras_name(activations::linear) == "linear");
  CHECK(keras_name(activations::relu) == "relu");
  CHECK(keras_name(activations::sigmoid) == "sigmoid");
  CHECK(keras_name(activations::tanh) == "tanh");
  CHECK(keras_name(activations::softmax) == "softmax");
}

TEST_CASE("optimizers report their learning rate and slot count") {
  Optimizer optimizer = Adam();
  CHECK(learning_rate_of(optimizer) == 0.001);
  set_learning_rate(optimizer, 0.5);
  CHECK(learning_rate_of(optimizer) == 0.5);
  CHECK(learning_rate_of(SGD()) == 0.01);
  CHECK(learning_rate_of(SGD()).at(1000) == 0.01);

  CHECK(num_slots(SGD()) == 0);
  CHECK(num_slots(SGD({.nesterov = true})) == 0);
  CHECK(num_slots(SGD({.momentum = 0.9})) == 1);
  CHECK(num_slots(Adam()) == 2);
  CHECK(num_slots(AdamW()) == 2);
  CHECK(num_slots(RMSprop()) == 1);
  CHECK(num_slots(RMSprop({.momentum = 0.9})) == 2);
  CHECK(num_slots(RMSprop({.centered = true})) == 2);
  CHECK(num_slots(RMSprop({.momentum = 0.9, .centered = true})) == 3);
  CHECK(num_slots(Adam({.amsgrad = true, .use_ema = true, .gradient_accumulation_steps = 2})) == 5);
}

TEST_CASE("an optimizer's update rule has the slots that it declares") {
  for (const Optimizer& optimizer :
       testing::complete({SGD(), SGD({.momentum = 0.9}), SGD({.momentum = 0.9, .nesterov = true}), RMSprop(),
                          RMSprop({.momentum = 0.9}), RMSprop({.centered = true}),
                          RMSprop({.momentum = 0.9, .centered = true}), Adam({.amsgrad = true}),
                          AdamW({.amsgrad = true}), Adamax({.use_ema = true, .gradient_accumulation_steps = 2})})) {
    INFO(keras_name(optimizer));
    CHECK_NOTHROW(check(optimizer));
    with_update_rule(optimizer, 1, [&]<typename Rule>(const Rule& /*rule*/) {
      CHECK(Rule::num_slots + shared_update(optimizer, 1).num_slots() == num_slots(optimizer));
    });
  }
  // Both have two slots, but different ones: they must not share state.
  CHECK(slots_of(RMSprop({.momentum = 0.9})) != slots_of(RMSprop({.centered = true})));
  CHECK(slots_of(RMSprop({.momentum = 0.9})) == slots_of(RMSprop({.momentum = 0.5})));
}

TEST_CASE("the padding of blocked layouts, in which all is 0, stays 0") {
  for (const Optimizer& optimizer :
       testing::complete({SGD(), SGD({.momentum = 0.9}), RMSprop(), RMSprop({.momentum = 0.9, .centered = true}),
                          Adam({.amsgrad = true}), Adamax(), Nadam(), Adagrad(), Adadelta(), Lion(), Ftrl()})) {
    INFO(keras_name(optimizer));
    with_update_rule(optimizer, 1, [&]<typename Rule>(const Rule& rule) {
      std::array<float, Rule::num_slots> slots{};
      float weight = 0;
      std::apply([&](auto&... slot) { rule(weight, 0.0F, slot...); }, slots);
      CHECK(weight == 0.0F);
    });
  }
}

TEST_CASE("slots have Keras' order in files") {
  const Slots slots = slots_of(Adam({.amsgrad = true, .use_ema = true, .gradient_accumulation_steps = 2}));
  std::vector<std::string> names(slots.size() * 2);
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    for (std::size_t weight = 0; weight < 2; ++weight)
      names[slot_index(slots, slot, weight, 2)] = std::string(slots[slot].name) + std::to_string(weight);
  }
  CHECK(names == std::vector<std::string>{"average0", "average1", "gradient_accumulator0", "gradient_accumulator1",
                                          "momentum0", "velocity0", "momentum1", "velocity1", "velocity_hat0",
                                          "velocity_hat1"});
}

TEST_CASE("a scheduled learning rate cannot be set, only replaced") {
  const CosineDecay cosine({.initial_learning_rate = 0.1, .decay_steps = 100});
  Optimizer optimizer = AdamW({.learning_rate = cosine, .weight_decay = 0.5});
  CHECK(learning_rate_of(optimizer) == cosine);
  try {
    set_learning_rate(optimizer, 0.5);
    FAIL("should have been refused");
  } catch (const UsageError& error) {
    const std::string message = error.what();
    INFO(message);
    CHECK(message.find("AdamW") != std::string::npos);
    CHECK(message.find("CosineDecay") != std::string::npos);
  }
  CHECK(learning_rate_of(optimizer) == cosine);
  replace_learning_rate(optimizer, 0.25);
  CHECK(learning_rate_of(optimizer) == 0.25);
  set_learning_rate(optimizer, 0.5);
  CHECK(learning_rate_of(optimizer) == 0.5);
  CHECK(std::get<AdamW>(optimizer).weight_decay == 0.5);
}

TEST_CASE("out-of-range options are rejected by name") {
  for (const Optimizer& fine : {Optimizer{SGD()}, Optimizer{Adam()}, Optimizer{AdamW()}, Optimizer{RMSprop()},
                                Optimizer{SGD({.learning_rate = 0, .momentum = 1})}}) {
    CHECK_NOTHROW(check(fine));
  }
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  check_refused(SGD({.learning_rate = -1}), {"SGD's learning_rate is -1"});
  check_refused(Adam({.learning_rate = nan}), {"Adam's learning_rate is", "nan"});
  check_refused(AdamW({.learning_rate = std::numeric_limits<double>::infinity()}), {"AdamW's learning_rate is inf"});
  check_refused(RMSprop({.learning_rate = -0.5}), {"RMSprop's learning_rate is -0.5"});
  check_refused(SGD({.momentum = 1.1}), {"SGD's momentum is 1.1", "between 0 and 1"});
  check_refused(Adam({.beta_1 = 1}), {"beta_1 is 1", "below 1"});
  check_refused(Adam({.beta_2 = -0.1}), {"beta_2 is -0.1"});
  check_refused(Adam({.epsilon = 0}), {"epsilon is 0"});
  check_refused(AdamW({.weight_decay = -0.1}), {"weight_decay is -0.1"});
  check_refused(SGD({.weight_decay = -0.1}), {"SGD's weight_decay is -0.1"});
  check_refused(Lion({.beta_1 = 0}), {"Lion's beta_1 is 0"});
  check_refused(Ftrl({.learning_rate_power = 0.5}), {"Ftrl's learning_rate_power is 0.5"});
  check_refused(Adam({.gradient_accumulation_steps = 1}), {"Adam's gradient_accumulation_steps is 1", "at least 2"});
  check_refused(Adam({.ema_momentum = 1.5}), {"Adam's ema_momentum is 1.5"});
  check_refused(RMSprop({.rho = 1}), {"rho is 1"});
  check_refused(RMSprop({.momentum = nan}), {"momentum is"});
  check_refused(RMSprop({.epsilon = -1}), {"epsilon is -1"});
  check_refused(SGD({.clipnorm = -0.5}), {"SGD's clipnorm is -0.5", "not negative"});
  check_refused(Adam({.clipvalue = -1}), {"Adam's clipvalue is -1"});
  check_refused(AdamW({.global_clipnorm = nan}), {"AdamW's global_clipnorm is", "nan"});
  check_refused(RMSprop({.clipnorm = std::numeric_limits<double>::infinity()}), {"RMSprop's clipnorm is inf"});
  check_refused(Adam({.clipnorm = 1, .global_clipnorm = 2}), {"Adam", "more than one of clipnorm, clipvalue and"});
}

TEST_CASE("an optimizer reports its clipping") {
  const auto check_clipping = [](const Optimizer& optimizer, ClippingKind kind, double bound, bool needs_norms) {
    INFO(keras_name(optimizer));
    CHECK_NOTHROW(check(optimizer));
    CHECK(clipping_of(optimizer).kind == kind);
    CHECK(clipping_of(optimizer).bound == bound);
    CHECK(clipping_of(optimizer).needs_norms() == needs_norms);
  };
  check_clipping(SGD(), ClippingKind::none, 0, false);
  check_clipping(SGD({.clipnorm = 0}), ClippingKind::none, 0, false);
  check_clipping(SGD({.clipnorm = 0.5}), ClippingKind::clipnorm, 0.5, true);
  check_clipping(Adam({.clipvalue = 2}), ClippingKind::clipvalue, 2, false);
  check_clipping(AdamW({.global_clipnorm = 3}), ClippingKind::global_clipnorm, 3, true);
  check_clipping(RMSprop({.global_clipnorm = 3}), ClippingKind::global_clipnorm, 3, true);
}

TEST_CASE("invalid or incomplete schedules are rejected by name") {
  const auto refused = [](const LearningRate& rate, const std::vector<std::string>& parts) {
    check_refused(SGD({.learning_rate = rate}), parts);
  };
  refused(ExponentialDecay({}), {"SGD's ExponentialDecay.initial_learning_rate is nan", "given"});
  refused(ExponentialDecay({.initial_learning_rate = 0.1, .decay_rate = 0.5}), {"ExponentialDecay.decay_steps is nan"});
  refused(ExponentialDecay({.initial_learning_rate = 0.1, .decay_steps = 5}), {"ExponentialDecay.decay_rate is nan"});
  refused(ExponentialDecay({.initial_learning_rate = 0.1, .decay_steps = 5, .decay_rate = -1}), {"decay_rate is -1"});
  refused(InverseTimeDecay({.initial_learning_rate = 0.1, .decay_steps = 0, .decay_rate = 1}),
          {"InverseTimeDecay.decay_steps is 0", "above 0"});
  refused(InverseTimeDecay({.initial_learning_rate = -0.1, .decay_steps = 1, .decay_rate = 1}),
          {"InverseTimeDecay.initial_learning_rate is -0.1"});
  refused(PolynomialDecay({.initial_learning_rate = 0.1, .decay_steps = 5, .end_learning_rate = -1}),
          {"PolynomialDecay.end_learning_rate is -1"});
  refused(PolynomialDecay({.initial_learning_rate = 0.1, .decay_steps = 5, .power = -2}),
          {"PolynomialDecay.power is -2"});
  refused(CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 5, .alpha = -0.5}), {"CosineDecay.alpha is -0.5"});
  refused(CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 5, .warmup_target = -1}),
          {"CosineDecay.warmup_target is -1"});
  refused(CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 5, .warmup_target = 1, .warmup_steps = -3}),
          {"CosineDecay.warmup_steps is -3"});
  refused(PiecewiseConstantDecay({}), {"PiecewiseConstantDecay.values are 0 for 0 boundaries"});
  refused(PiecewiseConstantDecay({.boundaries = {1, 2}, .values = {1, 2}}), {"values are 2 for 2 boundaries"});
  refused(PiecewiseConstantDecay({.boundaries = {2, 2}, .values = {1, 2, 3}}), {"boundaries is 2", "above the one"});
  refused(PiecewiseConstantDecay({.boundaries = {2}, .values = {1, -2}}), {"PiecewiseConstantDecay.values is -2"});

  const int steps = 10;  // integers of any type are accepted
  CHECK_NOTHROW(check(Adam(
      {.learning_rate = CosineDecay({.initial_learning_rate = 0, .decay_steps = 10 * steps, .warmup_target = 0.1})})));
  CHECK_NOTHROW(check(
      Adam({.learning_rate = PiecewiseConstantDecay({.boundaries = {steps, 2 * steps}, .values = {1, 0.5, 0}})})));
}
