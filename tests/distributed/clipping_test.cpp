// Clipping acts on the gradient of the global batch, whoever holds which part of it: after 20 steps any number of
// ranks, by examples and by features, has the weights of the reference, which computes all on one machine.
#include "cluster/world.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/models.hpp"
#include "support/ranks.hpp"
#include "support/reference_training.hpp"
#include "support/scoped_variable.hpp"

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

/// Every kind of variable: divided by columns and by rows, repeated, with statistics beside it; and several buckets.
const std::vector<Sequential> models{
    many_kinds_of_layers(),
    Sequential{Input({12}), Dense(24, {.activation = sigmoid}), Dense(17, {.activation = activations::tanh}),
               BatchNormalization(), Dense(31, {.use_bias = false}), Activation(sigmoid), Dense(4)},
};

/// Links that lead to divisions by features of different kinds (LOCKSTEP_TEST_LINK).
const std::vector<std::string> links{"1e-9,1e13,1e9", "1e-3,1e5,1e13"};

/// An optimizer and, to compare with, the same without clipping.
struct Clipped {
  Optimizer optimizer;
  Optimizer unclipped;
};

/// Bounds small enough to bite in every step.
const std::vector<Clipped> clipped{
    {SGD({.learning_rate = 0.5, .global_clipnorm = 0.1}), SGD({.learning_rate = 0.5})},
    {SGD({.learning_rate = 0.5, .clipnorm = 0.03}), SGD({.learning_rate = 0.5})},
    {SGD({.learning_rate = 0.5, .momentum = 0.9, .clipvalue = 1e-3}), SGD({.learning_rate = 0.5, .momentum = 0.9})},
    {Adam({.learning_rate = 0.01, .epsilon = 1e-3, .global_clipnorm = 0.02}),
     Adam({.learning_rate = 0.01, .epsilon = 1e-3})},
    {RMSprop({.learning_rate = 0.003, .momentum = 0.5, .epsilon = 1e-3, .clipnorm = 0.01}),
     RMSprop({.learning_rate = 0.003, .momentum = 0.5, .epsilon = 1e-3})},
};

Options options_for(Division division) {
  return {.model_dir = directory,
          .global_batch_size = 10,
          .seed = 7,
          .division = division,
          .verbose = 0,
          .program = "clipping_test"};
}

std::vector<Variable> train(const Sequential& architecture, const Optimizer& optimizer, const Examples& examples,
                            const Options& options) {
  MultiWorkerMirroredStrategy strategy(options);
  Model model = strategy.build(architecture);
  model.compile({.optimizer = optimizer, .loss = logits, .metrics = {accuracy}});
  model.fit(examples.data, {.epochs = 5});  // 20 steps
  return model.weights();
}

constexpr const char* link_variable = "LOCKSTEP_TEST_LINK";

}  // namespace

TEST_CASE("Twenty clipped steps are the reference's, however the work is divided") {
  const World world;
  for (const Sequential& architecture : models) {
    const Examples examples = make_examples(architecture, logits, 37, 3);
    for (const auto& [optimizer, unclipped] : clipped) {
      INFO(name_of(optimizer) << ", " << name_of(clipping_of(optimizer).kind) << ", " << architecture.layers().size()
                              << " layers, " << world.size() << " ranks");
      const auto reference_of = [&](const Optimizer& by) {
        ReferenceTraining training(architecture, {.optimizer = by, .loss = logits}, examples, 7,
                                   static_cast<std::size_t>(world.size()));
        training.fit(5, 10);
        return training;
      };
      ReferenceTraining expected = reference_of(optimizer);
      ReferenceTraining without = reference_of(unclipped);
      const auto check = [&](const Options& options) {
        const std::vector<Variable> weights = train(architecture, optimizer, examples, options);
        const auto [error, name] = expected.compare(weights);
        INFO("worst: " << name);
        CHECK(error < 1e-4);
        CHECK(without.compare(weights).first > 0.03);  // so it bites
        CHECK(equal_everywhere(weights));
      };
      Options by_examples = options_for(Division::examples);
      check(by_examples);
      by_examples.communication = Communication::mpi;  // every rank a host
      check(by_examples);
      for (const std::string& link : links) {
        const ScopedVariable scoped(link_variable, link);
        INFO("by features, link " << link);
        check(options_for(Division::features));
      }
    }
  }
}

TEST_CASE("The same world clips to the same bits again, in fit and in a loop of one's own") {
  const Examples examples = make_examples(models[0], logits, 40, 3);
  const ScopedVariable scoped(link_variable, links[0]);
  for (const Division division : {Division::examples, Division::features}) {
    for (const Clipped& each : {clipped[0], clipped[1], clipped[2]}) {
      const std::vector<Variable> once = train(models[0], each.optimizer, examples, options_for(division));
      CHECK(equal(once, train(models[0], each.optimizer, examples, options_for(division))));
      MultiWorkerMirroredStrategy strategy(options_for(division));
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

TEST_CASE("Gradients that are rounded on their way are clipped alike on all ranks") {
  const Examples examples = make_examples(models[0], logits, 40, 3);
  const std::vector<Variable> exact = train(models[0], clipped[0].optimizer, examples, options_for(Division::examples));
  Options options = options_for(Division::examples);
  options.gradient_compression = GradientCompression::bfloat16;
  options.communication = Communication::mpi;
  const std::vector<Variable> rounded = train(models[0], clipped[0].optimizer, examples, options);
  CHECK(equal_everywhere(rounded));
  for (std::size_t p = 0; p < exact.size(); ++p) {
    INFO(exact[p].name);
    const std::vector<double> expected(exact[p].values.begin(), exact[p].values.end());
    CHECK(distance(rounded[p].values, expected) <= 0.02 * std::max(norm(expected), 0.1));
  }
}

TEST_CASE("A clipped training that is broken off ends with the bits of one that was not") {
  const ScopedVariable scoped(link_variable, links[0]);
  for (const Division division : {Division::examples, Division::features}) {
    const auto run = [&](int dies_at) {
      return train_with_backups(models[0], clipped[3].optimizer, options_for(division), dies_at);
    };
    remove_backups(options_for(division));
    const std::vector<Variable> whole = run(never);
    CHECK_THROWS_AS(run(8), Death);
    CHECK(equal(run(never), whole));
  }
}
