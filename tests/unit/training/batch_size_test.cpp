// Training, evaluation and prediction with batch sizes other than --global-batch-size, on one worker.
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/reference_training.hpp"
#include "unit/training/training_job.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/model.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("fit, evaluate, predict and batches take a batch size") {
  const Examples examples = make_examples(everything, logits, 29, 3);
  ReferenceTraining expected(everything, plain, examples, 7, 2);
  expected.fit(2, 8);
  for (const int by_default : {3, 8, 40}) {
    INFO("--global-batch-size " << by_default);
    Job job(everything, plain, silent_options(by_default, 2));
    const History history =
        job.model.fit(examples.data, {.batch_size = 8, .epochs = 2, .validation_data = &examples.data});
    const auto [error, name] = expected.compare(job.model.weights());
    INFO("worst: " << name);
    CHECK(error < 1e-4);
    CHECK(history["val_loss"][1] == job.model.evaluate(examples.data, {.batch_size = 8}).at("loss"));
    for (const int batch_size : {0, 1, 5, 8, 100}) {
      const Logs logs = job.model.evaluate(examples.data, {.batch_size = batch_size});
      CHECK(logs.at("loss") == Approx(expected.evaluate().loss()).epsilon(1e-4));
      CHECK(logs.at("accuracy") == Approx(expected.evaluate().accuracy()));
      const std::vector<float> outputs = job.model.predict(examples.data, {.batch_size = batch_size});
      CHECK(relative_error(outputs, expected.predict()) < 1e-4);
    }
    Job looped(everything, plain, silent_options(by_default, 2));
    for ([[maybe_unused]] const int epoch : looped.model.epochs(2)) {
      for (const Batch& batch : looped.model.batches(examples.data, {.batch_size = 8})) looped.model.train_step(batch);
    }
    CHECK(same_bits(looped.model.weights(), job.model.weights()));
    MetricSums test;
    std::size_t batches = 0;
    for (const Batch& batch : looped.model.batches(examples.data, {.batch_size = 10, .shuffle = false})) {
      test += looped.model.test_step(batch);
      ++batches;
    }
    CHECK(batches == 3);
    CHECK(test.loss() == Approx(expected.evaluate().loss()).epsilon(1e-4));
    CHECK_THROWS_AS(job.model.fit(examples.data, {.batch_size = -1}), UsageError);
    CHECK_THROWS_AS(job.model.evaluate(examples.data, {.batch_size = -1}), UsageError);
    CHECK_THROWS_AS(job.model.predict(examples.data, {.batch_size = -1}), UsageError);
  }
}

TEST_CASE("a batch size given to fit and the same one by default give the same bits") {
  const Examples examples = make_examples(everything, logits, 29, 3);
  Job given(everything, plain, silent_options(20));  // has other layouts in memory to convert from
  Job by_default(everything, plain, silent_options(8));
  given.model.fit(examples.data, {.batch_size = 8, .epochs = 2});
  by_default.model.fit(examples.data, {.epochs = 2});
  CHECK(same_bits(given.model.weights(), by_default.model.weights()));
  given.model.fit(examples.data, {.epochs = 2, .steps_per_epoch = 3});
  by_default.model.fit(examples.data, {.batch_size = 20, .epochs = 2, .steps_per_epoch = 3});
  CHECK(same_bits(given.model.weights(), by_default.model.weights()));
}

TEST_CASE("train_step takes batches of any size") {
  const Examples examples = make_examples(everything, logits, 29, 3);
  const CompileOptions compile{.optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4}), .loss = logits};
  Job job(everything, compile, silent_options(8, 3));
  ReferenceTraining expected(everything, compile, examples, 7, 3);
  std::uint64_t position = 0;
  for (const std::size_t size : {8, 20, 3, 60, 1, 20, 8, 60}) {
    const MetricSums step = job.model.train_step({.data = &examples.data, .position = position, .size = size});
    const ReferenceMetrics wanted = expected.train_step(position, size);
    INFO("a batch of " << size);
    CHECK(step.loss_sum == Approx(wanted.loss_sum).epsilon(1e-4));
    CHECK(step.num_examples == wanted.num_examples);
    position += size;
  }
  CHECK(expected.compare(job.model.weights()).first < 1e-4);
}

TEST_CASE("evaluation and prediction with other batch sizes do not affect training") {
  struct Evaluator : Callback {
    const Dataset* data;
    explicit Evaluator(const Dataset& evaluated) : data(&evaluated) {}
    void on_train_batch_end(Model& model, std::int64_t batch, const MetricSums& /*epoch_so_far*/) override {
      for (int size = 1; size < 10; ++size) {  // more sizes than a model keeps steps of
        static_cast<void>(model.evaluate(*data, {.batch_size = size + 2 * static_cast<int>(batch)}));
      }
      static_cast<void>(model.predict(*data, {.batch_size = 50}));
    }
  };
  const Examples examples = make_examples(everything, logits, 29, 3);
  Job evaluated(everything, plain);
  evaluated.model.fit(examples.data, {.batch_size = 12, .epochs = 2, .callbacks = {Evaluator(examples.data)}});
  Job other(everything, plain);
  other.model.fit(examples.data, {.batch_size = 12, .epochs = 2});
  CHECK(same_bits(evaluated.model.weights(), other.model.weights()));
}
