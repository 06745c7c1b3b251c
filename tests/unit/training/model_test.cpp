// The public Model on one worker, against the reference, and its errors.
#include "backend/make_backend.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/reference_training.hpp"
#include "unit/training/training_job.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
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

TEST_CASE("mismatched data is rejected before computation") {
  Job job(small, plain);
  const std::vector<NamedTensor> before = job.model.weights();
  const Examples wide = make_examples(Sequential{Input({7}), Dense(3)}, logits, 8, 5);
  CHECK(contains(message_of<DataError>([&] { job.model.fit(wide.data); }), "(7,)"));
  CHECK_THROWS_AS(job.model.evaluate(wide.data), DataError);
  CHECK_THROWS_AS(job.model.predict(wide.data), DataError);
  const Examples dense = make_examples(small, MeanSquaredError(), 8, 5);
  CHECK(contains(message_of<UsageError>([&] { job.model.fit(dense.data); }), "dense targets"));
  const Examples many = make_examples(Sequential{Input({6}), Dense(30)}, logits, 40, 5);
  CHECK_THROWS_AS(job.model.fit(many.data), DataError);  // classes out of the model's range
  Dataset empty = make_examples(small, logits, 8, 5).data.slice(0, 0);
  CHECK_THROWS_AS(job.model.fit(empty), DataError);
  CHECK(same_bits(job.model.weights(), before));

  Model uncompiled = job.strategy.build(small);
  const Examples examples = make_examples(small, logits, 8, 5);
  CHECK(contains(message_of<UsageError>([&] { uncompiled.fit(examples.data); }), "compile"));
  CHECK_THROWS_AS(uncompiled.compile({.optimizer = SGD({.learning_rate = -1})}), UsageError);
  CHECK_THROWS_AS(uncompiled.predict(examples.data), UsageError);
}

TEST_CASE("shapes must be equal but for a last axis of 1") {
  const auto refusal = [](const Shape& model_shape, const Shape& data_shape, int examples = 8) {
    Job job(Sequential{Input(model_shape), Flatten(), Dense(3)}, plain);
    Dataset data = make_examples(Sequential{Input(model_shape), Flatten(), Dense(3)}, logits, examples, 5).data;
    data.example_shape = data_shape;
    return message_of<DataError>([&] { job.model.fit(data); });
  };
  const std::string none = "no such error was thrown";
  CHECK(refusal({4, 4}, {4, 4, 1}) == none);
  CHECK(refusal({4, 4, 1}, {4, 4}) == none);
  CHECK(contains(refusal({4, 4, 3}, {3, 4, 4}), "numpy.transpose(x, (0, 2, 3, 1))"));
  CHECK(contains(refusal({6, 4, 3}, {4, 6, 3}), "numpy.transpose(x, (0, 2, 1, 3))"));
  CHECK(contains(refusal({8, 4, 3}, {4, 3}, 1), "for a single example, give x[None]"));
  CHECK(contains(refusal({4, 4, 3}, {4, 12}), "takes examples of shape (4, 4, 3)"));
  CHECK(contains(refusal({6}, {2, 3}), "(2, 3); reshape or resize"));
  CHECK(contains(refusal({4, 2}, {2, 4}), "(2, 4)"));

  Job regression(Sequential{Input({6}), Dense(4), Reshape({2, 2})},
                 {.optimizer = SGD(), .loss = MeanSquaredError(), .metrics = {}});
  Dataset data = make_examples(Sequential{Input({6}), Dense(4)}, MeanSquaredError(), 8, 5).data;
  CHECK(contains(message_of<DataError>([&] { regression.model.fit(data); }), "has targets of shape (4,)"));
}

TEST_CASE("inputs of integers take whole numbers, and bytes as they are") {
  const auto model_of = [](InputType type) { return Sequential{Input({4}, "in", type), Dense(3)}; };
  const auto predict = [&](InputType type, decltype(Dataset::inputs) inputs) {
    Job job(model_of(type), plain);
    Dataset data;
    data.example_shape = Shape{4};
    data.inputs = std::move(inputs);
    return job.model.predict(data);
  };
  const auto refusal = [&](InputType type, const std::vector<float>& inputs) {
    return message_of<DataError>([&] { (void)predict(type, inputs); });
  };
  const std::vector<float> whole{0, 1, 200, 255};
  const std::vector<float> expected = predict(InputType::float32, whole);
  CHECK(predict(InputType::int32, whole) == expected);
  CHECK(predict(InputType::uint8, std::vector<std::uint8_t>{0, 1, 200, 255}) == expected);
  CHECK(predict(InputType::float32, std::vector<std::uint8_t>{0, 1, 200, 255}) != expected);  // times 1/255
  CHECK(contains(refusal(InputType::int32, {0, 1, 2.5F, 3}), "value 2 of"));
  CHECK(contains(refusal(InputType::int32, {0, 1, 2.5F, 3}), "is 2.5, but the model's input is int32"));
  CHECK(contains(refusal(InputType::uint8, {0, 1, 256, 3}), "is 256"));
  CHECK(contains(refusal(InputType::boolean, {0, 1, 1, -1}), "is -1"));
  CHECK(contains(refusal(InputType::int32, {0, 3e9F, 1, 1}), "value 1 of"));

  Job computing(Sequential{Input({2, 2, 1}), Flatten(), Dense(3)}, plain);
  const auto refused = [&](const Layer& first) {
    const Sequential model{Input({2, 2, 1}, "in", InputType::uint8), first, Flatten(), Dense(3)};
    Model made = computing.strategy.build(model);
    return message_of<UsageError>([&] { made.compile(plain); });
  };
  CHECK(contains(refused(Conv2D(2, 1)), "reads an Input of uint8"));
  CHECK(contains(refused(MaxPooling2D()), "Rescaling(1) before"));
  CHECK(contains(refused(Rescaling(1)), "no such error"));
  CHECK(contains(refused(Reshape({4, 1, 1})), "no such error"));

  const Tensor image = Input({4}, "in", InputType::uint8);
  const Architecture nested = model_of(InputType::uint8);
  Job job(small, plain);
  CHECK_NOTHROW(job.strategy.build(Functional(image, nested(image))).compile(plain));
  Model of_floats = job.strategy.build(Functional(image, nested(Dense(4)(image))));
  CHECK(contains(message_of<UsageError>([&] { of_floats.compile(plain); }),
                 "takes uint8 and is called on other numbers"));
}

TEST_CASE("a new dataset at the address of a freed one is recognized as new") {
  Job job(small, plain);
  std::optional<Examples> place;
  for (const std::size_t count : {40, 3, 17, 1}) {
    place.emplace(make_examples(small, logits, count, count));
    ReferenceTraining expected(small, plain, *place, 7, 1);
    const std::vector<NamedTensor> weights = job.model.weights();
    for (std::size_t p = 0; p < weights.size(); ++p) {
      expected.model.weights()[p].assign(weights[p].values.begin(), weights[p].values.end());
    }
    CHECK(job.model.evaluate(place->data).at("loss") == Approx(expected.evaluate().loss()).epsilon(1e-5));
    CHECK(job.model.fit(place->data)["loss"][0] == Approx(expected.fit(1, 8)[0].loss()).epsilon(1e-5));
  }
  place.emplace(make_examples(Sequential{Input({9}), Dense(3)}, logits, 8, 5));
  CHECK_THROWS_AS(job.model.evaluate(place->data), DataError);
  place.emplace(make_examples(small, MeanSquaredError(), 8, 5));
  CHECK_THROWS_AS(job.model.evaluate(place->data), UsageError);
  job.model.compile({.optimizer = SGD(), .loss = MeanSquaredError()});
  CHECK_NOTHROW(job.model.evaluate(place->data));
  job.model.compile(plain);
  CHECK_THROWS_AS(job.model.evaluate(place->data), UsageError);
}

TEST_CASE("labels of a dataset of equal size at the address of a freed one are checked") {
  Job job(small, plain);
  std::optional<Examples> place(make_examples(small, logits, 8, 5));
  job.model.fit(place->data);
  place.emplace(make_examples(small, logits, 8, 5));
  const auto& targets = std::get<SharedArray<std::int32_t>>(place->data.targets);
  std::vector<std::int32_t> wrong(targets.begin(), targets.end());
  wrong[3] = 99;
  place->data.targets = wrong;
  CHECK_THROWS_AS(job.model.fit(place->data), DataError);
  CHECK_THROWS_AS(job.model.evaluate(place->data), DataError);
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
