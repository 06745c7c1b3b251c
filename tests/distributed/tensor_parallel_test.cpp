// Tensor parallelism must train like data parallelism: after a hundred steps the weights are equal within float
// tolerance, for every layer, optimizer and sharding.
#include "cluster/world/world.hpp"
#include "graph/lower.hpp"
#include "parallel/sharding.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/ranks.hpp"
#include "support/scoped_variable.hpp"
#include "support/sharded_models.hpp"
#include "support/shardings.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("cheap links choose data parallelism first and then tensor parallelism") {
  const HardwareModel hardware{.latency = 1e-9, .bytes_per_second = 1e13, .flops_per_second = 1e9};
  for (const Sequential& model : models) {
    for (const int ranks : {2, 3, 4}) {
      const auto sharding = search_sharding(lower(model, loss_of(model), Precision::float32), ranks, 10, hardware);
      REQUIRE(sharding);
      CHECK(sharding->code().substr(0, 3) == "eee");
    }
  }
}

TEST_CASE("a hundred tensor-parallel steps match a hundred data-parallel steps") {
  std::size_t turn = 0;
  for (const Sequential& model : models) {
    const Optimizer& optimizer = optimizers[turn++ % optimizers.size()];
    const ParallelismComparison steps(model, optimizer);
    for (const std::string& link : links) {
      const ScopedVariable scoped(link_variable, link);
      INFO(describe_layers(model) << ", " << keras_name(optimizer) << ", link " << link);
      steps.check_tensor_parallel();
    }
  }
}

TEST_CASE("data-parallel leading layers run in microbatches") {
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
  const Outcome data_parallel = train(model, optimizer, examples, options_for(Parallelism::data, 73), 3);
  for (const std::string& link : {links[0], links[1]}) {
    const ScopedVariable scoped(link_variable, link);
    INFO("link " << link);
    check_near(train(model, optimizer, examples, options_for(Parallelism::tensor, 73), 3), data_parallel, 1e-4);
  }
}

TEST_CASE("layers with constraints are whole in a tensor-parallel model") {
  const Sequential model{Input({12}), Dense(24, {.activation = activations::tanh, .kernel_constraint = MaxNorm(0.5)}),
                         Dense(16, {.activation = relu}), Dense(8),
                         Dense(4, {.kernel_constraint = UnitNorm(), .bias_constraint = NonNeg()})};
  const Examples examples = make_examples(model, logits, 24, 3);
  for (const std::string& link : links) {
    const ScopedVariable scoped(link_variable, link);
    INFO("link " << link);
    const SGD optimizer({.learning_rate = 0.1});
    const Outcome data_parallel = train(model, optimizer, examples, options_for(Parallelism::data, 12), 10);
    check_near(train(model, optimizer, examples, options_for(Parallelism::tensor, 12), 10), data_parallel, 1e-4);
  }
}

TEST_CASE("every optimizer updates sharded and whole parameters alike") {
  for (const Optimizer& optimizer : optimizers) {
    INFO(keras_name(optimizer));
    const Examples examples = make_examples(models[0], logits, 24, 3);
    const Outcome data_parallel = train(models[0], optimizer, examples, options_for(Parallelism::data, 12), 3);
    const Outcome tensor_parallel = train(models[0], optimizer, examples, options_for(Parallelism::tensor, 12), 3);
    check_near(tensor_parallel, data_parallel, 1e-4);
  }
}

TEST_CASE("replicas work under tensor parallelism and batches may be smaller than the world") {
  const Examples examples = make_examples(models[0], logits, 23, 3);
  const auto check = [&](int batch, int replicas, const std::string& link, const std::string& code) {
    const ScopedVariable scoped_link(link_variable, link);
    const ScopedVariable scoped_splits(splits_variable, code);
    INFO("batches of " << batch << ", " << replicas << " replicas, link " << link << ", " << code);
    const auto run = [&](Parallelism parallelism) {
      Options options = options_for(parallelism, batch);
      options.batch_norm_replicas = replicas;
      return train(models[0], SGD({.learning_rate = 0.1}), examples, options, 2);
    };
    check_near(run(Parallelism::tensor), run(Parallelism::data), 1e-3);
  };
  // In the last one a row-parallel convolution follows data-parallel layers.
  for (const auto& [link, code] :
       {std::pair(links[0], ""), std::pair(links[2], ""), std::pair(links[0], "eeeeeraaaa")}) {
    check(11, 5, link, code);
    check(10, 4, link, code);
    check(1, 0, link, code);
    check(2, 0, link, code);
  }
}

TEST_CASE("a tensor-parallel model trains and is evaluated with several batch sizes") {
  const Examples examples = make_examples(models[0], logits, 29, 3);
  const auto run = [&](Parallelism parallelism, const Optimizer& optimizer) {
    MultiWorkerMirroredStrategy strategy(options_for(parallelism));
    Model model = strategy.build(models[0]);
    model.compile({.optimizer = optimizer, .loss = logits, .metrics = {accuracy}});
    Outcome outcome;
    model.fit(examples.data, {.batch_size = 7, .epochs = 1});
    model.save_async(directory / "model.keras");  // the gather goes on while the arenas are laid out again
    model.train_step({.data = &examples.data, .size = 24});
    model.train_step({.data = &examples.data, .size = 3});
    outcome.history = model.fit(examples.data, {.epochs = 1, .validation_data = &examples.data});
    outcome.weights = model.weights();
    outcome.evaluation = model.evaluate(examples.data, {.batch_size = 500});
    outcome.outputs = model.predict(examples.data, {.batch_size = 500});
    CHECK(relative_distance(model.predict(examples.data, {.batch_size = 3}), outcome.outputs) < 1e-5);
    MetricSums test;
    for (const Batch& batch : model.batches(examples.data, {.batch_size = 20, .shuffle = false})) {
      test += model.test_step(batch);
    }
    CHECK(test.loss() == Approx(outcome.evaluation.at("loss")).epsilon(1e-5));
    CHECK(model.iterations() == 5 + 2 + 3);
    return outcome;
  };
  for (const Optimizer& optimizer : {Optimizer(Adam({.learning_rate = 0.01, .epsilon = 1e-4})),
                                     Optimizer(SGD({.learning_rate = 0.1, .momentum = 0.9}))}) {
    const Outcome data_parallel = run(Parallelism::data, optimizer);
    for (const std::string& link : links) {
      const ScopedVariable scoped(link_variable, link);
      INFO(keras_name(optimizer) << ", link " << link);
      const Outcome tensor_parallel = run(Parallelism::tensor, optimizer);
      check_near(tensor_parallel, data_parallel, 1e-3);
      CHECK(equal_on_all_ranks(tensor_parallel.weights));
      CHECK(equal(run(Parallelism::tensor, optimizer).weights, tensor_parallel.weights));
    }
  }
}

TEST_CASE("mixed precision under tensor parallelism stays within bfloat16 tolerance") {
  const Examples examples = make_examples(models[0], logits, 32, 3);
  const auto run = [&](Parallelism parallelism) {
    Options options = options_for(parallelism, 16);
    options.precision = Precision::mixed_bfloat16;
    return train(models[0], SGD({.learning_rate = 0.1}), examples, options, 5);
  };
  Outcome data_parallel;
  try {
    data_parallel = run(Parallelism::data);
  } catch (const UsageError&) {
    return;  // the CPU has no bfloat16
  }
  for (const std::string& link : links) {
    const ScopedVariable scoped(link_variable, link);
    INFO("link " << link);
    const Outcome tensor_parallel = run(Parallelism::tensor);
    check_near(tensor_parallel, data_parallel, 0.05);
    CHECK(equal_on_all_ranks(tensor_parallel.weights));
  }
}

TEST_CASE("tensor-parallel training is reproducible bit for bit") {
  const Examples examples = make_examples(models[1], logits, 30, 3);
  for (const std::string& link : links) {
    const ScopedVariable scoped(link_variable, link);
    const auto run = [&] { return train(models[1], Adam(), examples, options_for(Parallelism::tensor, 12), 3); };
    const Outcome first = run();
    const Outcome second = run();
    CHECK(equal(first.weights, second.weights));
    CHECK(first.history["loss"] == second.history["loss"]);
    CHECK(first.outputs == second.outputs);
  }
}

TEST_CASE("a model that cannot be sharded throws the same error on all ranks") {
  MultiWorkerMirroredStrategy strategy(options_for(Parallelism::tensor, 8));
  Model model = strategy.build(Sequential{Input({6}), Dense(3)});
  const std::string message = message_of<UsageError>([&] { model.compile({.optimizer = SGD(), .loss = logits}); });
  INFO(message);
  CHECK(contains(message, "layer 'dense' are the model's outputs"));
  CHECK(contains(message, "--parallelism data"));
}

TEST_CASE("all workers choose the same parallelism and a backup keeps it") {
  const World world;
  const Examples examples = make_examples(models[0], logits, 24, 3);
  const auto data_parallel = train(models[0], Adam(), examples, options_for(Parallelism::data, 12), 2).weights;
  {  // with measured costs, all ranks make the same choice
    const auto measured = train(models[0], Adam(), examples, options_for(Parallelism::automatic, 12), 2).weights;
    CHECK(equal_on_all_ranks(measured));
    check_near(measured, data_parallel, 1e-3);
  }
  const auto chosen = [&](const std::string& link) {
    const ScopedVariable scoped(link_variable, link);
    return train(models[0], Adam(), examples, options_for(Parallelism::automatic, 12), 2).weights;
  };
  const std::string slow_kernels =
      "1e-9,1e13,1e6";  // compute is expensive: data parallelism shards work that tensor parallelism would replicate
  CHECK(equal(chosen(slow_kernels), data_parallel));
  const std::string slow_link = "1e-9,1e7,1e8";
  {
    const ScopedVariable scoped(link_variable, slow_link);
    const auto tensor_parallel_weights =
        train(models[0], Adam(), examples, options_for(Parallelism::tensor, 12), 2).weights;
    CHECK(equal(chosen(slow_link), world.size() > 1 ? tensor_parallel_weights : data_parallel));
  }
  const std::string no_link = "1e-9,1e4,1e13";  // communication is so expensive that every rank computes everything
  const auto alone = chosen(no_link);
  CHECK(equal_on_all_ranks(alone));
  // If workers measure different networks, the chief's measurement counts.
  CHECK(equal(chosen(world.rank() == 0 ? slow_kernels : slow_link), data_parallel));
  CHECK(equal(chosen(world.rank() == 0 ? slow_link : slow_kernels), chosen(slow_link)));
  if (world.size() > 1) {
    CHECK(contains(message_of<UsageError>([&] { chosen(world.rank() == 0 ? slow_link : ""); }), "all or to none"));
  }
  check_near(alone, data_parallel, 1e-3);
}
