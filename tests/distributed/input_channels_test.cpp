// Convolutions that take slices of their input's channels train what the same ranks train by examples: each rank's
// result is a part, and the ranks sum them up.
#include "support/catch.hpp"
#include "support/divided_models.hpp"
#include "support/division.hpp"
#include "support/examples.hpp"
#include "support/ranks.hpp"
#include "support/scoped_variable.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/options.hpp>

#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("Convolutions may take slices of their input's channels") {
  std::size_t turn = 0;
  for (const Divided& divided : by_input_channels) {
    const Optimizer& optimizer = optimizers[turn++ % optimizers.size()];
    const HundredSteps steps(divided.model, optimizer);
    for (const std::string& code : {divided.code, divided.behind_examples}) {
      const ScopedVariable scoped(ways_variable, code);
      INFO(describe_layers(divided.model) << ", " << name_of(optimizer) << ", " << code);
      const Outcome once = steps.check_by_features();
      CHECK(equal(once.weights, steps.run(Division::features, HundredSteps::many_epochs).weights));
    }
  }
}

TEST_CASE("In mixed precision parts of a convolution are summed up in float32") {
  for (const auto& [model, code] : {std::pair(by_input_channels[0].model, by_input_channels[0].code),
                                    std::pair(by_input_channels[0].model, by_input_channels[0].behind_examples),
                                    std::pair(by_input_channels[3].model, by_input_channels[3].code)}) {
    const ScopedVariable scoped(ways_variable, code);
    const Examples examples = make_examples(model, loss_of(model), 32, 3);
    const auto run = [&model = model, &examples](Division division) {
      Options options = options_for(division, 16);
      options.precision = Precision::mixed_bfloat16;
      return train(model, SGD({.learning_rate = 0.1}), examples, options, 2);
    };
    Outcome by_examples;
    try {
      by_examples = run(Division::examples);
    } catch (const UsageError&) {
      return;  // a CPU without bfloat16
    }
    INFO(describe_layers(model));
    const Outcome by_features = run(Division::features);
    check_near(by_features, by_examples, 0.1);  // of small biases
    CHECK(equal_everywhere(by_features.weights));
  }
}
