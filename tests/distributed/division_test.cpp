// A model divided by features trains what the same ranks train by examples: the same weights to float tolerance after a
// hundred steps, for every layer and optimizer, and however the layers are divided.
#include "plan/division.hpp"
#include "cluster/world.hpp"
#include "plan/lower.hpp"
#include "support/catch.hpp"
#include "support/divided_models.hpp"
#include "support/division.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"
#include "support/scoped_variable.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("Links that cost little divide by examples first, by features then") {
  const Speeds speeds{.latency = 1e-9, .bytes_per_second = 1e13, .flops_per_second = 1e9};
  for (const Sequential& model : models) {
    for (const int ranks : {2, 3, 4}) {
      const auto division = divide_by_features(lower(model, loss_of(model), false), ranks, 10, speeds);
      REQUIRE(division);
      CHECK(division->code().substr(0, 3) == "eee");
    }
  }
}

TEST_CASE("A hundred steps by features are a hundred steps by examples") {
  std::size_t turn = 0;
  for (const Sequential& model : models) {
    const Optimizer& optimizer = optimizers[turn++ % optimizers.size()];
    const HundredSteps steps(model, optimizer);
    for (const std::string& link : links) {
      const ScopedVariable scoped(link_variable, link);
      INFO(describe_layers(model) << ", " << name_of(optimizer) << ", link " << link);
      steps.check_by_features();
    }
  }
}

TEST_CASE("A trunk by examples runs through its rows slice by slice") {
  const Sequential model{Input({48, 48, 1}),
                         Conv2D(64, 3, {.activation = relu}),
                         MaxPooling2D(),
                         Dropout(0.2),
                         Conv2D(8, 3, {.activation = activations::tanh}),
                         Flatten(),
                         Dense(20),
                         Dense(4)};
  const Examples examples = make_examples(model, logits, 75, 3);
  const SGD optimizer({.learning_rate = 0.01});
  const Outcome by_examples = train(model, optimizer, examples, options_for(Division::examples, 73), 3);
  for (const std::string& link : {links[0], links[1]}) {
    const ScopedVariable scoped(link_variable, link);
    INFO("link " << link);
    check_near(train(model, optimizer, examples, options_for(Division::features, 73), 3), by_examples, 1e-4);
  }
}

TEST_CASE("Every optimizer moves slices as it moves whole layers") {
  for (const Optimizer& optimizer : optimizers) {
    INFO(name_of(optimizer));
    const Examples examples = make_examples(models[0], logits, 24, 3);
    const Outcome by_examples = train(models[0], optimizer, examples, options_for(Division::examples, 12), 3);
    const Outcome by_features = train(models[0], optimizer, examples, options_for(Division::features, 12), 3);
    check_near(by_features, by_examples, 1e-4);
  }
}

TEST_CASE("Replicas belong to the job by features as well, and batches may be smaller than the world") {
  const Examples examples = make_examples(models[0], logits, 23, 3);
  const auto check = [&](int batch, int replicas, const std::string& link, const std::string& code) {
    const ScopedVariable scoped_link(link_variable, link);
    const ScopedVariable scoped_ways(ways_variable, code);
    INFO("batches of " << batch << ", " << replicas << " replicas, link " << link << ", " << code);
    const auto run = [&](Division division) {
      Options options = options_for(division, batch);
      options.replicas = replicas;
      return train(models[0], SGD({.learning_rate = 0.1}), examples, options, 2);
    };
    check_near(run(Division::features), run(Division::examples), 1e-3);
  };
  // The last: from examples into a convolution.
  for (const auto& [link, code] :
       {std::pair(links[0], ""), std::pair(links[2], ""), std::pair(links[0], "eeeeeraaaa")}) {
    check(11, 5, link, code);
    check(10, 4, link, code);
    check(1, 0, link, code);
    check(2, 0, link, code);
  }
}

TEST_CASE("In mixed precision slices keep the tolerances of bfloat16") {
  const Examples examples = make_examples(models[0], logits, 32, 3);
  const auto run = [&](Division division) {
    Options options = options_for(division, 16);
    options.precision = Precision::mixed_bfloat16;
    return train(models[0], SGD({.learning_rate = 0.1}), examples, options, 5);
  };
  Outcome by_examples;
  try {
    by_examples = run(Division::examples);
  } catch (const UsageError&) {
    return;  // a CPU without bfloat16
  }
  for (const std::string& link : links) {
    const ScopedVariable scoped(link_variable, link);
    INFO("link " << link);
    const Outcome by_features = run(Division::features);
    check_near(by_features, by_examples, 0.05);
    CHECK(equal_everywhere(by_features.weights));
  }
}

TEST_CASE("The same world divided by features computes the same bits again") {
  const Examples examples = make_examples(models[1], logits, 30, 3);
  for (const std::string& link : links) {
    const ScopedVariable scoped(link_variable, link);
    const auto run = [&] { return train(models[1], Adam(), examples, options_for(Division::features, 12), 3); };
    const Outcome first = run();
    const Outcome second = run();
    CHECK(equal(first.weights, second.weights));
    CHECK(first.history["loss"] == second.history["loss"]);
    CHECK(first.outputs == second.outputs);
  }
}

TEST_CASE("A model that cannot be divided is refused on all ranks alike") {
  MultiWorkerMirroredStrategy strategy(options_for(Division::features, 8));
  Model model = strategy.build(Sequential{Input({6}), Dense(3)});
  const std::string message = message_of<UsageError>([&] { model.compile({.optimizer = SGD(), .loss = logits}); });
  INFO(message);
  CHECK(contains(message, "layer 'dense' are the model's outputs"));
  CHECK(contains(message, "--division examples"));
}

TEST_CASE("The choice is made for all workers alike, and goes on with a backup") {
  const World world;
  const Examples examples = make_examples(models[0], logits, 24, 3);
  const auto by_examples = train(models[0], Adam(), examples, options_for(Division::examples, 12), 2).weights;
  {  // measured: whichever it is, all have it
    const auto measured = train(models[0], Adam(), examples, options_for(Division::automatic, 12), 2).weights;
    CHECK(equal_everywhere(measured));
    check_near(measured, by_examples, 1e-3);
  }
  const auto chosen = [&](const std::string& link) {
    const ScopedVariable scoped(link_variable, link);
    return train(models[0], Adam(), examples, options_for(Division::automatic, 12), 2).weights;
  };
  const std::string slow_kernels = "1e-9,1e13,1e6";  // where examples divide what this model can only repeat
  CHECK(equal(chosen(slow_kernels), by_examples));
  const std::string slow_link = "1e-9,1e7,1e8";
  {
    const ScopedVariable scoped(link_variable, slow_link);
    const auto divided = train(models[0], Adam(), examples, options_for(Division::features, 12), 2).weights;
    CHECK(equal(chosen(slow_link), world.size() > 1 ? divided : by_examples));
  }
  const std::string no_link = "1e-9,1e4,1e13";  // where each computes all
  const auto alone = chosen(no_link);
  CHECK(equal_everywhere(alone));
  // Of workers who see different networks, the chief is right.
  CHECK(equal(chosen(world.rank() == 0 ? slow_kernels : slow_link), by_examples));
  CHECK(equal(chosen(world.rank() == 0 ? slow_link : slow_kernels), chosen(slow_link)));
  check_near(alone, by_examples, 1e-3);
}
