// Names, slots and ranges of optimizers; names of losses, metrics and activations.
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/nn/activation.hpp>
#include <lockstep/nn/losses.hpp>
#include <lockstep/nn/optimizers.hpp>

#include <limits>
#include <string>
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

TEST_CASE("Everything goes by Keras' name") {
  CHECK(name_of(Optimizer{SGD()}) == "SGD");
  CHECK(name_of(Optimizer{Adam()}) == "Adam");
  CHECK(name_of(Optimizer{AdamW()}) == "AdamW");
  CHECK(name_of(Optimizer{RMSprop()}) == "RMSprop");
  CHECK(name_of(Loss{SparseCategoricalCrossentropy()}) == "sparse_categorical_crossentropy");
  CHECK(name_of(Loss{CategoricalCrossentropy()}) == "categorical_crossentropy");
  CHECK(name_of(Loss{MeanSquaredError()}) == "mean_squared_error");
  CHECK(name_of(accuracy) == "accuracy");
  CHECK(name_of(activations::linear) == "linear");
  CHECK(name_of(activations::relu) == "relu");
  CHECK(name_of(activations::sigmoid) == "sigmoid");
  CHECK(name_of(activations::tanh) == "tanh");
  CHECK(name_of(activations::softmax) == "softmax");
}

TEST_CASE("Optimizers tell their learning rate and how much they remember") {
  Optimizer optimizer = Adam();
  CHECK(learning_rate_of(optimizer) == 0.001);
  set_learning_rate(optimizer, 0.5);
  CHECK(learning_rate_of(optimizer) == 0.5);
  CHECK(learning_rate_of(SGD()) == 0.01);

  CHECK(slots_of(SGD()) == 0);
  CHECK(slots_of(SGD({.nesterov = true})) == 0);
  CHECK(slots_of(SGD({.momentum = 0.9})) == 1);
  CHECK(slots_of(Adam()) == 2);
  CHECK(slots_of(AdamW()) == 2);
  CHECK(slots_of(RMSprop()) == 1);
  CHECK(slots_of(RMSprop({.momentum = 0.9})) == 2);
  CHECK(slots_of(RMSprop({.centered = true})) == 2);
  CHECK(slots_of(RMSprop({.momentum = 0.9, .centered = true})) == 3);
}

TEST_CASE("Options out of their range are refused by name") {
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
  check_refused(RMSprop({.rho = 1}), {"rho is 1"});
  check_refused(RMSprop({.momentum = nan}), {"momentum is"});
  check_refused(RMSprop({.epsilon = -1}), {"epsilon is -1"});
}
