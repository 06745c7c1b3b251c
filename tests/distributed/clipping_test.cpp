// Clipping acts on the gradient of the global batch, however it is sharded: after 20 steps any number of ranks, data
// parallel or tensor parallel, must have the weights of the reference, which computes everything in one process.
#include "cluster/world/world.hpp"
#include "core/environment.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/models.hpp"
#include "support/ranks.hpp"
#include "support/reference_training.hpp"
#include "support/scoped_variable.hpp"

#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const SparseCategoricalCrossentropy logits({.from_logits = true});
const std::filesystem::path directory = std::filesystem::temp_directory_path() / "lockstep-clipping-test";

/// Column-parallel, row-parallel and replicated variables, statistics, and several buckets.
const std::vector<Sequential> models{
    many_kinds_of_layers(),
    Sequential{Input({12}), Dense(24, {.activation = sigmoid}), Dense(17, {.activation = activations::tanh}),
               BatchNormalization(), Dense(31, {.use_bias = false}), Activation(sigmoid), Dense(4)},
};

/// Links that lead to different tensor-parallel shardings.
const std::vector<std::string> links{"1e-9,1e13,1e9", "1e-3,1e5,1e13"};

/// An optimizer with clipping, and the same one without, for comparison.
struct Clipped {
  Optimizer optimizer;
  Optimizer unclipped;
};

/// The bounds are small enough to clip in every step.
const std::vector<Clipped> clipped{
    {SGD({.learning_rate = 0.5, .global_clipnorm = 0.1}), SGD({.learning_rate = 0.5})},
    {SGD({.learning_rate = 0.5, .clipnorm = 0.03}), SGD({.learning_rate = 0.5})},
    {SGD({.learning_rate = 0.5, .momentum = 0.9, .clipvalue = 1e-3}), SGD({.learning_rate = 0.5, .momentum = 0.9})},
    {Adam({.learning_rate = 0.01, .epsilon = 1e-3, .global_clipnorm = 0.02}),
     Adam({.learning_rate = 0.01, .epsilon = 1e-3})},
    {RMSprop({.learning_rate = 0.003, .momentum = 0.5, .epsilon = 1e-3, .clipnorm = 0.01}),
     RMSprop({.learning_rate = 0.003, .momentum = 0.5, .epsilon = 1e-3})},
};

constexpr const char* link_variable = "LOCKSTEP_ASSUMED_HARDWARE";

Options options_for(Parallelism parallelism) {
  return {.model_dir = directory,
          .global_batch_size = 10,
          .seed = 7,
          .parallelism = parallelism,
          .verbose = 0,
          .assumed_hardware = value_of(current_environment(), link_variable),
          .program = "clipping_test"};
}

std::vector<NamedTensor> train(const Sequential& architecture, const Optimizer& optimizer, const Examples& examples,
                               const Options& options) {
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(architecture);
  model.compile({.optimizer = optimizer, .loss = logits, .metrics = {accuracy}});
  model.fit(examples.data, {.epochs = 5});  // 20 steps
  return model.weights();
}

}  // namespace

TEST_CASE("twenty clipped steps match the reference under every parallelism") {
  const World world;
  for (const Sequential& architecture : models) {
    const Examples examples = make_examples(architecture, logits, 37, 3);
    for (const auto& [optimizer, unclipped] : clipped) {
      INFO(keras_name(optimizer) << ", " << keras_name(clipping_of(optimizer).kind) << ", "
                                 << architecture.layers().size() << " layers, " << world.size() << " ranks");
      const auto reference_of = [&](const Optimizer& by) {
        ReferenceTraining training(architecture, {.optimizer = by, .loss = logits}, examples, 7,
                                   static_cast<std::size_t>(world.size()));
        training.fit(5, 10);
        return training;
      };
      ReferenceTraining expected = reference_of(optimizer);
      ReferenceTraining without = reference_of(unclipped);
      const auto check = [&](const Options& options) {
        const std::vector<NamedTensor> weights = train(architecture, optimizer, examples, options);
        const auto [error, name] = expected.compare(weights);
        INFO("worst: " << name);
        CHECK(error < 1e-4);
        CHECK(without.compare(weights).first > 0.03);  // clipping has an effect
        CHECK(equal_on_all_ranks(weights));
      };
      Options data_parallel = options_for(Parallelism::data);
      check(data_parallel);
      data_parallel.communication = Communication::mpi;  // each rank acts as a host
      check(data_parallel);
      for (const std::string& link : links) {
        const ScopedVariable scoped(link_variable, link);
        INFO("tensor parallel, link " << link);
        check(options_for(Parallelism::tensor));
      }
    }
  }
}

TEST_CASE("clipping is reproducible bit for bit in fit and in a custom training loop") {
  const Examples examples = make_examples(models[0], logits, 40, 3);
  const ScopedVariable scoped(link_variable, links[0]);
  for (const Parallelism parallelism : {Parallelism::data, Parallelism::tensor}) {
    for (const Clipped& each : {clipped[0], clipped[1], clipped[2]}) {
      const std::vector<NamedTensor> once = train(models[0], each.optimizer, examples, options_for(parallelism));
      CHECK(equal(once, train(models[0], each.optimizer, examples, options_for(parallelism))));
      MultiWorkerMirroredStrategy strategy(options_for(parallelism));
      Model model = strategy.build(models[0]);
      model.compile({.optimizer = each.optimizer, .loss = logits});
      for (const int epoch : model.epochs(5)) {
        for (const Batch& batch : model.batches(examples.data)) model.train_step(batch);
        model.end_epoch(epoch);
      }
      CHECK(equal(once, model.weights()));
    }
  }
}

TEST_CASE("compressed gradients are clipped identically on all ranks") {
  const Examples examples = make_examples(models[0], logits, 40, 3);
  const std::vector<NamedTensor> exact =
      train(models[0], clipped[0].optimizer, examples, options_for(Parallelism::data));
  Options options = options_for(Parallelism::data);
  options.gradient_compression = GradientCompression::bfloat16;
  options.communication = Communication::mpi;
  const std::vector<NamedTensor> rounded = train(models[0], clipped[0].optimizer, examples, options);
  CHECK(equal_on_all_ranks(rounded));
  for (std::size_t p = 0; p < exact.size(); ++p) {
    INFO(exact[p].name);
    const std::vector<double> expected(exact[p].values.begin(), exact[p].values.end());
    CHECK(distance(rounded[p].values, expected) <= 0.02 * std::max(norm(expected), 0.1));
  }
}

TEST_CASE("interrupted training with clipping resumes bit-identically") {
  const ScopedVariable scoped(link_variable, links[0]);
  for (const Parallelism parallelism : {Parallelism::data, Parallelism::tensor}) {
    const auto run = [&](int killed_at_step) {
      return train_with_backups(models[0], clipped[3].optimizer, options_for(parallelism), killed_at_step);
    };
    remove_backups(options_for(parallelism));
    const std::vector<NamedTensor> whole = run(never);
    CHECK_THROWS_AS(run(8), SimulatedDeath);
    CHECK(equal(run(never), whole));
  }
}
