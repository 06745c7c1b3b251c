// Any number of ranks trains what the reference says one machine would: whatever the division of the ranks into hosts,
// with global batches that divide, that do not, and that leave ranks without examples.
#include "cluster/world.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/models.hpp"
#include "support/ranks.hpp"
#include "support/reference_training.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const SparseCategoricalCrossentropy logits({.from_logits = true});

const Sequential everything = many_kinds_of_layers();
const Sequential small{Input({6}), Dense(5, {.activation = activations::tanh}), Dense(3)};

Options quiet(int batch, Communication communication = Communication::automatic) {
  return {.model_dir = std::filesystem::temp_directory_path() / "lockstep-distributed-test",
          .global_batch_size = batch,
          .seed = 7,
          .communication = communication,
          .division = Division::examples,  // others are division_test's; bits of runs that measure may differ
          .verbose = 0};
}

struct Job {
  MultiWorkerMirroredStrategy strategy;
  Model model;
  Job(const Sequential& architecture, const CompileOptions& compile, const Options& options)
      : strategy(options), model(strategy.build(architecture)) {
    model.compile(compile);
  }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(strategy.num_workers()); }
};

std::string exactly(const Logs& logs) {
  std::string text;
  for (const auto& [name, value] : logs) text += name + " " + std::to_string(std::bit_cast<std::uint64_t>(value)) + " ";
  return text;
}

void check_training(const CompileOptions& compile, int batch, std::size_t count, Communication communication,
                    int replicas = 0) {
  Options options = quiet(batch, communication);
  options.replicas = replicas;
  const Examples examples = make_examples(everything, compile.loss, count, 3);
  Job job(everything, compile, options);
  INFO(name_of(compile.optimizer) << ", " << count << " examples in batches of " << batch << ", " << job.ranks()
                                  << " ranks");
  const std::size_t slices = replicas > 0 ? static_cast<std::size_t>(replicas) : job.ranks();
  ReferenceTraining expected(everything, compile, examples, 7, slices);

  const History history = job.model.fit(examples.data, {.epochs = 2});
  const auto epochs = expected.fit(2, static_cast<std::size_t>(batch));
  for (std::size_t e = 0; e < 2; ++e) {
    CHECK(history["loss"][e] == Approx(epochs[e].loss()).epsilon(1e-4));
    CHECK(history["accuracy"][e] == Approx(epochs[e].accuracy()));
    CHECK(equal_everywhere(exactly(history.epochs[e].logs)));
  }
  const std::vector<Variable> weights = job.model.weights();
  const auto [error, name] = expected.compare(weights);
  INFO("worst: " << name);
  CHECK(error < 1e-4);
  CHECK(equal_everywhere(weights));

  const Logs logs = job.model.evaluate(examples.data);
  CHECK(logs.at("loss") == Approx(expected.evaluate().loss()).epsilon(1e-4));
  CHECK(logs.at("accuracy") == Approx(expected.evaluate().accuracy()));
  CHECK(equal_everywhere(exactly(logs)));
  const std::vector<float> outputs = job.model.predict(examples.data);
  CHECK(relative_error(outputs, expected.predict()) < 1e-4);
  CHECK(equal_everywhere(std::to_string(digest_of({{"outputs", Shape{}, outputs}}))));
}

}  // namespace

TEST_CASE("Any number of ranks trains what the reference trains") {
  const std::vector<Optimizer> optimizers{
      SGD({.learning_rate = 0.1}), Adam({.learning_rate = 0.01, .epsilon = 1e-4}),
      RMSprop({.learning_rate = 0.003, .momentum = 0.5, .epsilon = 1e-3, .centered = true})};
  std::size_t turn = 0;
  for (const Communication communication : {Communication::automatic, Communication::mpi}) {
    for (const auto& [batch, count] : std::vector<std::pair<int, std::size_t>>{{12, 36}, {10, 27}, {2, 7}, {1, 3}}) {
      const CompileOptions compile{.optimizer = optimizers[turn++ % 3], .loss = logits, .metrics = {accuracy}};
      check_training(compile, batch, count, communication);
    }
  }
}

TEST_CASE("Replicas belong to the job: their number decides, not that of the ranks") {
  const CompileOptions compile{.optimizer = SGD({.learning_rate = 0.1}), .loss = logits, .metrics = {accuracy}};
  check_training(compile, 10, 27, Communication::automatic, 4);
  check_training(compile, 11, 27, Communication::automatic, 5);
}

TEST_CASE("The same world computes the same bits again") {
  const Examples examples = make_examples(everything, logits, 40, 3);
  const auto run = [&] {
    Job job(everything, {.optimizer = Adam(), .loss = logits, .metrics = {accuracy}}, quiet(10));
    const History history = job.model.fit(examples.data, {.epochs = 2, .validation_data = &examples.data});
    return std::pair(digest_of(job.model.weights()), exactly(history.epochs[1].logs));
  };
  const auto first = run();
  CHECK(run() == first);
}

TEST_CASE("Gradients that are rounded on their way leave all ranks equal, and train nearly the same") {
  const Examples examples = make_examples(everything, logits, 40, 3);
  const auto run = [&](GradientCompression compression) {
    Options options = quiet(10, Communication::mpi);  // every rank a host
    options.gradient_compression = compression;
    Job job(everything, {.optimizer = SGD({.learning_rate = 0.1}), .loss = logits, .metrics = {accuracy}}, options);
    const History history = job.model.fit(examples.data, {.epochs = 3});
    const std::uint64_t digest = digest_of(job.model.weights());
    CHECK(equal_everywhere(std::to_string(digest) + exactly(history.epochs[2].logs)));
    return std::pair(digest, history["loss"][2]);
  };
  const auto exact = run(GradientCompression::none);
  const auto rounded = run(GradientCompression::bfloat16);
  CHECK(run(GradientCompression::bfloat16) == rounded);
  const World world;
  CHECK((rounded.first == exact.first) == (world.size() == 1));  // of one rank nothing travels
  CHECK(rounded.second == Approx(exact.second).epsilon(0.01));
}

TEST_CASE("A loop of one's own agrees on every step's metrics") {
  const Examples examples = make_examples(small, logits, 23, 5);
  const CompileOptions compile{.optimizer = SGD({.learning_rate = 0.1}), .loss = logits, .metrics = {accuracy}};
  Job job(small, compile, quiet(5));
  ReferenceTraining expected(small, compile, examples, 7, job.ranks());
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const Batch& batch : job.strategy.batches(examples.data, epoch)) {
      const StepMetrics step = job.model.train_step(batch);
      const StepMetrics wanted = expected.train_step(batch.position, batch.size);
      CHECK(step.loss_sum == Approx(wanted.loss_sum).epsilon(1e-5));
      CHECK(step.correct == wanted.correct);
      CHECK(step.count == wanted.count);
    }
    StepMetrics test;
    for (const Batch& batch : job.strategy.batches(examples.data, 0, false)) test += job.model.test_step(batch);
    CHECK(test.loss() == Approx(expected.evaluate().loss()).epsilon(1e-5));
  }
}

TEST_CASE("Weights given to the model reach every rank") {
  Job job(everything, {.optimizer = SGD(), .loss = logits}, quiet(8));
  std::vector<Variable> weights = job.model.weights();
  for (Variable& variable : weights) {
    for (std::size_t i = 0; i < variable.values.size(); ++i) variable.values[i] = 0.001F * static_cast<float>(i % 100);
  }
  job.model.set_weights(weights);
  CHECK(digest_of(job.model.weights()) == digest_of(weights));
  job.model.compile({.optimizer = Adam(), .loss = logits});
  CHECK(digest_of(job.model.weights()) == digest_of(weights));
}

TEST_CASE("Ranks of different opinions learn of both") {
  const World world;
  if (world.size() == 1) return;
  const bool odd_one = world.rank() == world.size() - 1;
  const auto message = [&](const std::function<void()>& action, const std::string& one, const std::string& other) {
    const std::string text = message_of<UsageError>(action);
    INFO(text);
    CHECK(contains(text, one));
    CHECK(contains(text, other));
    CHECK(equal_everywhere(text));
  };
  const CompileOptions compile{.optimizer = SGD({.learning_rate = 0.1}), .loss = logits};
  Options options = quiet(8);
  options.seed = odd_one ? 18 : 17;
  message([&] { Job(small, compile, options); }, "has 17", "has 18");

  options = quiet(8);
  options.gradient_compression = odd_one ? GradientCompression::bfloat16 : GradientCompression::none;
  message([&] { Job(small, compile, options); }, "--gradient-compression", "has bfloat16");

  const Sequential other{Input({6}), Dense(4, {.activation = activations::tanh}), Dense(3)};
  message([&] { Job(odd_one ? other : small, compile, quiet(8)); }, "Dense(5,)", "Dense(4,)");
  message([&] { Job(small, {.optimizer = SGD({.learning_rate = odd_one ? 0.25 : 0.125}), .loss = logits}, quiet(8)); },
          "0.125", "0.25");
  message([&] { Job(small, compile, quiet(odd_one ? 8 : 16)); }, "has 8", "has 16");

  const Examples examples = make_examples(small, logits, 16, odd_one ? 1 : 2);
  Job job(small, compile, quiet(8));
  message([&] { job.model.fit(examples.data); }, "the data", "16 examples of (6,)");
  const Examples same = make_examples(small, logits, 16, 1);
  CHECK_NOTHROW(job.model.fit(same.data));  // nobody is left behind
}

TEST_CASE("A loss that is no number ends all ranks at the same step") {
  const Examples examples = make_examples(small, MeanSquaredError(), 24, 5);
  Job job(Sequential{Input({6}), Dense(5), Dense(3)},
          {.optimizer = SGD({.learning_rate = 1e30}), .loss = MeanSquaredError()}, quiet(8));
  const std::string message = message_of<DataError>([&] { job.model.fit(examples.data, {.epochs = 3}); });
  INFO(message);
  CHECK(contains(message, "in epoch 1, step 2"));
  CHECK(equal_everywhere(message));
}
