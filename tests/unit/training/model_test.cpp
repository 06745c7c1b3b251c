// The public Model on one worker, against the reference, and its errors.
#include "backend/make_backend.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/reference_training.hpp"
#include "unit/training/training_job.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const Sequential small{Input({6}), Dense(5, {.activation = "tanh"}), Dense(3)};

}  // namespace

TEST_CASE("fit, evaluate and predict match the reference, including partial batches and replicas") {
  const std::vector<Optimizer> optimizers{
      SGD({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}), Adam({.learning_rate = 0.01, .epsilon = 1e-4}),
      AdamW({.learning_rate = 0.01, .epsilon = 1e-4}),
      RMSprop({.learning_rate = 0.003, .momentum = 0.5, .epsilon = 1e-3, .centered = true})};
  const Examples examples = make_examples(everything, logits, 29, 3);
  for (const Optimizer& optimizer : optimizers) {
    for (const int batch_norm_replicas : {1, 2, 3}) {
      INFO(keras_name(optimizer) << ", " << batch_norm_replicas << " replicas");
      const CompileOptions compile{.optimizer = optimizer, .loss = logits, .metrics = {accuracy}};
      Job job(everything, compile, silent_options(8, batch_norm_replicas));
      ReferenceTraining expected(everything, compile, examples, 7, static_cast<std::size_t>(batch_norm_replicas));
      const History history = job.model.fit(examples.data, {.epochs = 2});
      const auto epochs = expected.fit(2, 8);
      REQUIRE(history.epochs.size() == 2);
      for (std::size_t e = 0; e < 2; ++e) {
        CHECK(history["loss"][e] == Approx(epochs[e].loss()).epsilon(1e-4));
        CHECK(history["accuracy"][e] == Approx(epochs[e].accuracy()));
      }
      const auto [error, name] = expected.compare(job.model.weights());
      INFO("worst: " << name);
      CHECK(error < 1e-4);
      const Logs logs = job.model.evaluate(examples.data);
      CHECK(logs.at("loss") == Approx(expected.evaluate().loss()).epsilon(1e-4));
      CHECK(logs.at("accuracy") == Approx(expected.evaluate().accuracy()));
      CHECK(relative_error(job.model.predict(examples.data), expected.predict()) < 1e-4);
    }
  }
}

TEST_CASE("every loss trains through fit on bytes and floats") {
  const Sequential probabilities{Input({5, 5}), Reshape({5, 5, 1}), Conv2D(3, 2), Flatten(),
                                 Dense(4, {.activation = softmax})};
  const std::vector<std::pair<Sequential, Loss>> cases{{probabilities, SparseCategoricalCrossentropy()},
                                                       {probabilities, CategoricalCrossentropy()},
                                                       {probabilities, MeanSquaredError()},
                                                       {small, CategoricalCrossentropy({.from_logits = true})},
                                                       {everything, MeanSquaredError()},
                                                       {everything, logits}};
  for (const auto& [architecture, loss] : cases) {
    for (const Pixels pixels : {Pixels::bytes, Pixels::floats}) {
      const Examples examples = make_examples(architecture, loss, 21, 5, pixels);
      const CompileOptions compile{.optimizer = SGD({.learning_rate = 0.05}), .loss = loss, .metrics = {accuracy}};
      Job job(architecture, compile);
      ReferenceTraining expected(architecture, compile, examples, 7, 1);
      job.model.fit(examples.data, {.epochs = 2});
      expected.fit(2, 8);
      CHECK(expected.compare(job.model.weights()).first < 5e-5);
      CHECK(job.model.evaluate(examples.data).at("loss") == Approx(expected.evaluate().loss()).epsilon(1e-4));
    }
  }
}

TEST_CASE("fit and evaluate report every metric of compile") {
  const Loss loss = MeanSquaredError();
  const Examples examples = make_examples(small, loss, 21, 5);
  Job job(small, {.loss = loss,
                  .metrics = {metrics::RootMeanSquaredError(), accuracy, metrics::MeanAbsoluteError(),
                              metrics::TopKCategoricalAccuracy({.k = 2}), metrics::MeanSquaredError()}});
  const Logs logs = job.model.evaluate(examples.data);
  const std::vector<float> outputs = job.model.predict(examples.data);
  double absolute = 0;
  double squared = 0;
  double top_2 = 0;
  for (std::size_t i = 0; i < 21; ++i) {
    const std::span<const float> output = std::span(outputs).subspan(3 * i, 3);
    const std::span<const double> target = std::span(examples.targets).subspan(3 * i, 3);
    for (std::size_t k = 0; k < 3; ++k) {
      absolute += std::abs(target[k] - output[k]);
      squared += (target[k] - output[k]) * (target[k] - output[k]);
    }
    const float expected = output[static_cast<std::size_t>(std::ranges::max_element(target) - target.begin())];
    top_2 += std::ranges::count_if(output, [&](float value) { return value > expected; }) < 2 ? 1 : 0;
  }
  CHECK(logs.at("mean_absolute_error") == Approx(absolute / 63));
  CHECK(logs.at("mean_squared_error") == Approx(squared / 63));
  CHECK(logs.at("mean_squared_error") == Approx(logs.at("loss")));
  CHECK(logs.at("root_mean_squared_error") == Approx(std::sqrt(squared / 63)));
  CHECK(logs.at("top_k_categorical_accuracy") == top_2 / 21);
  CHECK(logs.contains("accuracy"));
  CHECK(logs.size() == 6);
  const History history = job.model.fit(examples.data, {.epochs = 2, .validation_data = &examples.data});
  CHECK(history["val_mean_absolute_error"].size() == 2);
  CHECK(history["mean_absolute_error"][1] < history["mean_absolute_error"][0]);
  const Logs without = Job(small, {.loss = loss}).model.evaluate(examples.data);
  CHECK(without == Logs{{"loss", logs.at("loss")}});
}

TEST_CASE("steps_per_epoch continues across passes in whole batches") {
  const Examples examples = make_examples(small, logits, 13, 5);
  Job job(small, plain);
  ReferenceTraining expected(small, plain, examples, 7, 1);
  const History history = job.model.fit(examples.data, {.epochs = 3, .steps_per_epoch = 4});
  const auto epochs = expected.fit(3, 8, 4);
  for (std::size_t e = 0; e < 3; ++e) CHECK(history["loss"][e] == Approx(epochs[e].loss()).epsilon(1e-5));
  CHECK(expected.compare(job.model.weights()).first < 1e-5);
}

TEST_CASE("a custom training loop matches fit") {
  const Examples examples = make_examples(everything, logits, 29, 3);
  Job fitted(everything, plain);
  fitted.model.fit(examples.data, {.epochs = 2});
  Job looped(everything, plain);
  for (const int epoch : looped.model.epochs(2)) {
    MetricSums sums;
    for (const Batch& batch : looped.model.batches(examples.data)) sums += looped.model.train_step(batch);
    CHECK(sums.num_examples == 29);
    const Logs logs = looped.model.end_epoch(epoch, {{"extra", 1.5}});
    CHECK(logs.at("loss") == sums.loss());
    CHECK(logs.at("accuracy") == looped.model.to_logs(sums).at("accuracy"));
    CHECK(logs.at("accuracy") == sums.sums.at(0) / 29);
    CHECK(logs.at("extra") == 1.5);
  }
  CHECK(same_bits(fitted.model.weights(), looped.model.weights()));
  MetricSums test;
  for (const Batch& batch : looped.model.batches(examples.data, {.shuffle = false}))
    test += looped.model.test_step(batch);
  CHECK(test.loss() == fitted.model.evaluate(examples.data).at("loss"));
  CHECK_THROWS_AS(looped.model.batches(examples.data), UsageError);  // the loop is over
}

TEST_CASE("an epoch can iterate over several ranges of batches") {
  const Examples examples = make_examples(small, logits, 40, 5);
  const Examples others = make_examples(small, logits, 13, 6);
  Job job(small, plain);
  CHECK_THROWS_AS(job.model.batches(examples.data), UsageError);
  for (const int epoch : job.model.epochs(2)) {
    std::vector<std::uint64_t> positions;
    MetricSums test;
    for (const Batch& batch : job.model.batches(examples.data)) {
      positions.push_back(batch.position);
      job.model.train_step(batch);
      if (positions.size() == 3) break;
    }
    for (const Batch& batch : job.model.batches(others.data)) {
      positions.push_back(batch.position);
      job.model.train_step(batch);
    }
    for (const Batch& batch : job.model.batches(others.data, {.shuffle = false})) test += job.model.test_step(batch);
    const auto pass = static_cast<std::uint64_t>(epoch);
    CHECK(positions == std::vector<std::uint64_t>{pass * 40, pass * 40 + 8, pass * 40 + 16, pass * 13, pass * 13 + 8});
    CHECK(test.num_examples == 13);
    CHECK(test.loss() == job.model.evaluate(others.data).at("loss"));
  }
  CHECK(job.model.iterations() == 10);
}

TEST_CASE("equal seeds give equal bits, different seeds different ones") {
  const auto run = [](std::uint64_t seed) {
    const Examples examples = make_examples(everything, logits, 40, 3);
    Options options = silent_options(16);
    options.seed = seed;
    Job job(everything, {.optimizer = Adam(), .loss = logits, .metrics = {accuracy}}, options);
    const History history = job.model.fit(examples.data, {.epochs = 2, .validation_data = &examples.data});
    std::vector<Logs> logs;
    for (const EpochRecord& epoch : history.epochs) logs.push_back(epoch.logs);
    return std::pair(job.model.weights(), logs);
  };
  const auto first = run(1);
  const auto again = run(1);
  CHECK(same_bits(first.first, again.first));
  CHECK(first.second == again.second);
  CHECK(first.second[0].size() == 4);
  CHECK(!same_bits(first.first, run(2).first));
}

TEST_CASE("validation does not affect training and matches evaluate") {
  const Examples examples = make_examples(everything, logits, 29, 3);
  const Examples others = make_examples(everything, logits, 11, 4);
  Job with(everything, plain);
  Job without(everything, plain);
  const History history = with.model.fit(examples.data, {.epochs = 2, .validation_data = &others.data});
  without.model.fit(examples.data, {.epochs = 2});
  CHECK(same_bits(with.model.weights(), without.model.weights()));
  const Logs logs = without.model.evaluate(others.data);
  CHECK(history.epochs[1].logs.at("val_loss") == logs.at("loss"));
  CHECK(history.epochs[1].logs.at("val_accuracy") == logs.at("accuracy"));
  CHECK(history.epochs[0].logs.at("val_loss") != logs.at("loss"));
}

TEST_CASE("weights round-trip in Keras' layout before and after compile") {
  MultiWorkerMirroredStrategy strategy{silent_options()};
  Model source = strategy.build(everything);
  const std::vector<NamedTensor> initial = source.weights();
  REQUIRE(initial.size() == 12);
  CHECK(initial[0].name == "conv2d/kernel");
  CHECK(initial[0].shape == Shape{3, 3, 1, 16});
  CHECK(initial[4].name == "batch_normalization/moving_mean");
  source.compile(plain);
  CHECK(same_bits(source.weights(), initial));
  const Examples examples = make_examples(everything, logits, 16, 3);
  source.fit(examples.data);
  const std::vector<NamedTensor> trained = source.weights();
  CHECK(!same_bits(trained, initial));

  source.compile({.optimizer = Adam(), .loss = MeanSquaredError()});  // compiling again keeps the weights
  CHECK(same_bits(source.weights(), trained));

  Model target = strategy.build(everything);
  target.set_weights(trained);
  CHECK(same_bits(target.weights(), trained));
  target.compile(plain);
  target.set_weights(initial);
  CHECK(same_bits(target.weights(), initial));
  target.set_weights(trained);
  CHECK(target.predict(examples.data) == source.predict(examples.data));

  std::vector<NamedTensor> wrong = trained;
  wrong.pop_back();
  CHECK(contains(message_of<UsageError>([&] { target.set_weights(wrong); }), "12 weights, but 11"));
  wrong = trained;
  wrong[2].shape = Shape{17};
  CHECK(contains(message_of<UsageError>([&] { target.set_weights(wrong); }), "batch_normalization/gamma"));
  CHECK(same_bits(target.weights(), trained));
}

TEST_CASE("options override the program's settings") {
  const Examples examples = make_examples(small, logits, 8, 5);
  Options options = silent_options();
  options.learning_rate = 0.5;
  Job overridden(small, plain, options);
  Job half(small, {.optimizer = SGD({.learning_rate = 0.5}), .loss = logits});
  overridden.model.fit(examples.data);
  half.model.fit(examples.data);
  CHECK(same_bits(overridden.model.weights(), half.model.weights()));
}

TEST_CASE("a NaN loss stops training with its position") {
  const Examples examples = make_examples(small, MeanSquaredError(), 24, 5);
  const CompileOptions wild{.optimizer = SGD({.learning_rate = 1e30}), .loss = MeanSquaredError()};
  Job job(Sequential{Input({6}), Dense(5), Dense(3)}, wild);
  const std::string message = message_of<DataError>([&] { job.model.fit(examples.data, {.epochs = 3}); });
  INFO(message);
  CHECK(contains(message, "in epoch 1, step 2"));
  CHECK(contains(message, "learning-rate"));

  Job loop(Sequential{Input({6}), Dense(5), Dense(3)}, wild);
  const std::string in_loop = message_of<DataError>([&] {
    for (const int epoch : loop.model.epochs(3)) {
      for (const Batch& batch : loop.model.batches(examples.data)) loop.model.train_step(batch);
      loop.model.end_epoch(epoch);
    }
  });
  CHECK(contains(in_loop, "in step 2"));
}

TEST_CASE("a metric that is NaN does not stop training") {
  const Examples examples = make_examples(small, MeanSquaredError(), 24, 5);
  Job job(Sequential{Input({6}), Dense(5), Dense(3)},  // some outputs are negative
          {.optimizer = SGD({.learning_rate = 0.01}), .loss = MeanSquaredError(), .metrics = {metrics::Poisson()}});
  const History history = job.model.fit(examples.data, {.epochs = 2});
  CHECK(std::isnan(history["poisson"].at(1)));
  CHECK(std::isfinite(history["loss"].at(1)));
}

TEST_CASE("mixed_bfloat16 trains almost like float32") {
  try {
    make_cpu_backend(1)->require_bfloat16();
  } catch (const UsageError& error) {
    WARN("skipped: " << error.what());
    return;
  }
  const Examples examples = make_examples(everything, logits, 40, 3);
  Options options = silent_options();
  options.precision = Precision::mixed_bfloat16;
  Job job(everything, plain, options);
  ReferenceTraining expected(everything, plain, examples, 7, 1);
  const History history = job.model.fit(examples.data, {.epochs = 3});
  const auto epochs = expected.fit(3, 8);
  for (std::size_t e = 0; e < 3; ++e) CHECK(history["loss"][e] == Approx(epochs[e].loss()).epsilon(0.03));
  CHECK(expected.compare(job.model.weights()).first < 0.03);
}
