// Model on several outputs: against one output that concatenates them, the names in logs, and messages.
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "unit/training/training_job.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// A hidden layer with outputs of 1 and of 3 elements; the second reads the first, too.
std::vector<Tensor> branches(const Tensor& input) {
  const Tensor hidden = Dropout(0.25)(Dense(6, {.activation = "tanh", .name = "hidden"})(input));
  const Tensor narrow = Dense(1, {.activation = "tanh", .name = "narrow"})(hidden);
  return {narrow, Dense(3, {.name = "wide"})(Concatenate()({hidden, narrow}))};
}

Functional several() {
  const Tensor input = Input({5}, "input");
  return {std::vector{input}, branches(input)};
}

/// The same with one output of 4 elements.
Functional joined() {
  const Tensor input = Input({5}, "input");
  const std::vector<Tensor> outputs = branches(input);
  return {std::vector{input}, std::vector{Concatenate()({outputs[0], outputs[1]})}};
}

/// Errors of 1 and of 3 elements have a quarter and three quarters of the mean over all 4.
const CompileOptions quarters{.optimizer = Adam({.learning_rate = 0.01, .epsilon = 1e-4}),
                              .outputs = {{.output = "narrow",
                                           .loss = MeanSquaredError(),
                                           .loss_weight = 0.25,
                                           .metrics = {metrics::MeanAbsoluteError()}},
                                          {.output = "wide",
                                           .loss = MeanSquaredError(),
                                           .loss_weight = 0.75,
                                           .metrics = {metrics::MeanAbsoluteError()},
                                           .weighted_metrics = {metrics::MeanAbsoluteError()}}}};
const CompileOptions whole{
    .optimizer = quarters.optimizer, .loss = MeanSquaredError(), .metrics = {metrics::MeanAbsoluteError()}};

/// The targets of each output, cut from those of the joined one.
Dataset cut(const Dataset& data) {
  std::vector<float> narrow;
  std::vector<float> wide;
  const auto& all = std::get<SharedArray<float>>(data.target().values);
  for (std::size_t i = 0; i < all.size(); ++i) (i % 4 == 0 ? narrow : wide).push_back(all[i]);
  Dataset separate = data;
  separate.targets = {{Shape{1}, std::move(narrow), "narrow"}, {Shape{3}, std::move(wide), "wide"}};
  separate.source = "some data";
  return separate;
}

void check_equal_weights(const Model& found, const Model& expected) {
  const std::vector<NamedTensor> ours = found.weights();
  const std::vector<NamedTensor> theirs = expected.weights();
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const reference::Values values(theirs[i].values.begin(), theirs[i].values.end());
    INFO(ours[i].name);
    CHECK(relative_error(ours[i].values, values) < 1e-4);
  }
}

}  // namespace

TEST_CASE("two outputs train as one that concatenates them") {
  const Dataset data = make_examples(joined(), MeanSquaredError(), 29, 3).data;
  const Dataset separate = cut(data);
  for (const int replicas : {1, 3}) {
    Job expected(joined(), whole, silent_options(8, replicas));
    Job job(several(), quarters, silent_options(8, replicas));
    job.model.set_weights(expected.model.weights());
    const History before = expected.model.fit(data, {.epochs = 3, .validation_data = &data});
    const History history = job.model.fit(separate, {.epochs = 3, .validation_data = &separate});
    check_equal_weights(job.model, expected.model);
    for (const std::string prefix : {"", "val_"}) {
      const double narrow = history[prefix + "narrow_loss"][2];
      const double wide = history[prefix + "wide_loss"][2];
      CHECK(history[prefix + "loss"][2] == Approx(before[prefix + "loss"][2]).epsilon(1e-4));
      CHECK(history[prefix + "loss"][2] == Approx(0.25 * narrow + 0.75 * wide).epsilon(1e-5));
      const double error = 0.25 * history[prefix + "narrow_mean_absolute_error"][2] +
                           0.75 * history[prefix + "wide_mean_absolute_error"][2];
      CHECK(error == Approx(before[prefix + "mean_absolute_error"][2]).epsilon(1e-4));
      CHECK(history[prefix + "wide_weighted_mean_absolute_error"][2] ==
            Approx(history[prefix + "wide_mean_absolute_error"][2]));
    }
    const Logs logs = job.model.evaluate(separate, {.batch_size = 5});
    CHECK(logs.at("loss") == Approx(expected.model.evaluate(data).at("loss")).epsilon(1e-4));
    CHECK(logs.at("loss") == Approx(history["val_loss"][2]).epsilon(1e-5));
    CHECK(logs.size() == 6);

    const std::vector<std::vector<float>> outputs = job.model.predict_outputs(separate);
    REQUIRE(outputs.size() == 2);
    const std::vector<float> all = expected.model.predict(data);
    for (std::size_t i = 0; i < data.size(); ++i) {
      CHECK(outputs[0][i] == Approx(all[4 * i]).margin(1e-4));
      for (std::size_t k = 0; k < 3; ++k) CHECK(outputs[1][3 * i + k] == Approx(all[4 * i + 1 + k]).margin(1e-4));
    }
    CHECK_THROWS_AS(job.model.predict(separate), UsageError);
  }
}

TEST_CASE("weights of examples count in the losses of all outputs") {
  Dataset data = make_examples(joined(), MeanSquaredError(), 16, 3).data;
  std::vector<float> weights(16, 1);
  for (std::size_t i = 0; i < 16; i += 3) weights[i] = 0.25F * static_cast<float>(i);
  data.sample_weights = std::move(weights);
  Job expected(joined(), whole);
  Job job(several(), quarters);
  job.model.set_weights(expected.model.weights());
  expected.model.fit(data, {.epochs = 2});
  job.model.fit(cut(data), {.epochs = 2});
  check_equal_weights(job.model, expected.model);
  CHECK_THROWS_AS(job.model.fit(cut(data), {.class_weight = {{0, 2.0}}}), UsageError);
}

TEST_CASE("targets are matched by name, or by order if they have none") {
  const Dataset data = cut(make_examples(joined(), MeanSquaredError(), 16, 3).data);
  const auto trained = [](const Dataset& on, const CompileOptions& compile = quarters) {
    Job job(several(), compile);
    job.model.fit(on, {.epochs = 2});
    return job.model.weights();
  };
  const std::vector<NamedTensor> expected = trained(data);
  Dataset swapped = data;
  std::swap(swapped.targets[0], swapped.targets[1]);
  CHECK(same_bits(trained(swapped), expected));
  Dataset unnamed = data;
  for (TargetArray& array : unnamed.targets) array.name = "";
  CHECK(same_bits(trained(unnamed), expected));
  CompileOptions reordered = quarters;
  std::swap(reordered.outputs[0], reordered.outputs[1]);
  CHECK(same_bits(trained(data, reordered), expected));
  for (OutputOptions& output : (reordered = quarters).outputs) output.output = "";
  CHECK(same_bits(trained(data, reordered), expected));
  const CompileOptions one{.optimizer = quarters.optimizer, .loss = MeanSquaredError()};
  CHECK_FALSE(same_bits(trained(data, one), expected));
  Job job(several(), one);
  CHECK(job.model.compile_options()->outputs.size() == 2);
}

TEST_CASE("losses of other kinds and missing targets are checked output by output") {
  CompileOptions mixed = quarters;
  mixed.outputs[1] = {.output = "wide", .loss = logits, .metrics = {accuracy}};
  Job job(several(), mixed);
  Dataset data = cut(make_examples(joined(), MeanSquaredError(), 8, 3).data);
  const auto refusal = [&] { return message_of<Error>([&] { job.model.fit(data); }); };
  CHECK(contains(refusal(), "takes class indices, but 'wide' of some data has dense targets"));
  data.targets[1] = {Shape{}, std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0, 3}, "wide"};
  CHECK(contains(refusal(), "target 7 of 'wide' of some data is class 3, but the model has classes 0 to 2"));
  data.targets[1] = {Shape{}, std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0, 1}, "wide"};
  const History history = job.model.fit(data);
  for (const char* name : {"loss", "narrow_loss", "wide_loss", "narrow_mean_absolute_error", "wide_accuracy"})
    CHECK(history.epochs[0].logs.contains(name));
  data = data.slice(0, 8);
  data.targets.pop_back();
  CHECK(contains(refusal(), "no array for the model's output 'wide', only 'narrow'"));
  data.targets.push_back({Shape{}, std::vector<std::int32_t>(8), "kind"});
  CHECK(contains(refusal(), "an array 'kind', but the model's outputs are 'narrow' and 'wide'"));
}

TEST_CASE("metrics beside those of outputs are refused, whatever the number of outputs") {
  for (const Functional& model : {several(), joined()}) {
    CompileOptions options{.metrics = {metrics::MeanAbsoluteError()}};
    for (std::size_t i = 0; i < model.outputs().size(); ++i)
      options.outputs.push_back({.output = model.output_name(i), .loss = MeanSquaredError()});
    CHECK_THROWS_AS(Job(model, options), UsageError);
  }
}
