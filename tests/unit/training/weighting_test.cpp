// Weights of examples and of classes, moving averages of weights, and accumulated gradients, through fit() and
// evaluate().
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/messages.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/callbacks/callback.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/strategy.hpp>

#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const SparseCategoricalCrossentropy logits({.from_logits = true});
const Sequential small{Input({6}), Dense(5, {.activation = activations::tanh}), Dense(3)};

struct Trained {
  std::vector<NamedTensor> weights;
  Logs logs;
};

Trained train(const Dataset& data, const CompileOptions& compile, const FitOptions& fit, int batch = 8) {
  const ScratchDirectory directory;
  MultiWorkerMirroredStrategy strategy{
      {.model_dir = directory.path(), .global_batch_size = batch, .seed = 3, .verbose = 0}};
  Model model = strategy.build(small);
  model.compile(compile);
  model.fit(data, fit);
  return {model.weights(), model.evaluate(data)};
}

struct FailAtEnd : Callback {
  void on_epoch_end(Model& /*model*/, int /*epoch*/, Logs& /*logs*/) override { throw UsageError("enough"); }
};

bool equal(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].values != b[i].values) return false;
  }
  return a.size() == b.size();
}

}  // namespace

TEST_CASE("class_weight weighs training examples as sample weights do") {
  const Examples examples = make_examples(small, logits, 30, 1);
  const CompileOptions compile{.optimizer = SGD({.learning_rate = 0.5}), .loss = logits, .metrics = {accuracy}};
  const Trained plain = train(examples.data, compile, {.epochs = 2});
  const Trained by_class = train(examples.data, compile, {.epochs = 2, .class_weight = {{0, 3.0}, {2, 0.25}}});
  Dataset weighted = examples.data;
  std::vector<float> weights;
  for (const double target : examples.targets) weights.push_back(target == 0 ? 3 : target == 1 ? 1 : 0.25F);
  weighted.sample_weights = std::move(weights);
  const Trained by_example = train(weighted, compile, {.epochs = 2});
  CHECK(!equal(by_class.weights, plain.weights));
  CHECK(equal(by_class.weights, by_example.weights));
  CHECK(by_class.logs.at("loss") != by_example.logs.at("loss"));  // evaluate() knows no classes' weights
  CHECK_THROWS_AS(train(weighted, compile, {.class_weight = {{0, 3.0}}}), UsageError);
}

TEST_CASE("class_weight ends with fit()") {
  const Examples examples = make_examples(small, logits, 8, 1);
  const auto after_a_loop = [&](const std::map<int, double>& class_weight, bool fails) {
    const ScratchDirectory directory;
    MultiWorkerMirroredStrategy strategy{
        {.model_dir = directory.path(), .global_batch_size = 8, .seed = 3, .verbose = 0}};
    Model model = strategy.build(small);
    model.compile({.optimizer = SGD({.learning_rate = 0.5}), .loss = logits});
    const std::vector<NamedTensor> initial = model.weights();
    FailAtEnd failing;
    FitOptions options{.class_weight = class_weight};
    if (fails) options.callbacks = {failing};
    try {
      model.fit(examples.data, options);
    } catch (const UsageError&) {
      CHECK(fails);
    }
    model.set_weights(initial);
    for ([[maybe_unused]] const int epoch : model.epochs(1)) {
      for (const Batch& batch : model.batches(examples.data)) model.train_step(batch);
    }
    return model.weights();
  };
  const std::vector<NamedTensor> plain = after_a_loop({}, false);
  CHECK(equal(after_a_loop({{0, 3.0}, {2, 0.25}}, false), plain));
  CHECK(equal(after_a_loop({{0, 3.0}, {2, 0.25}}, true), plain));
}

TEST_CASE("class_weight is of classes that exist, and finite") {
  const Examples examples = make_examples(small, logits, 8, 1);
  const CompileOptions compile{.optimizer = SGD(), .loss = logits};
  const auto refusal = [&](const std::map<int, double>& class_weight) {
    return message_of<UsageError>([&] { (void)train(examples.data, compile, {.class_weight = class_weight}); });
  };
  require_words(refusal({{1, std::nan("")}}), {"class_weight of the class 1 is nan", "finite"});
  require_words(refusal({{3, 2.0}}), {"the class 3", "0 to 2"});
  require_words(refusal({{-1, 2.0}}), {"the class -1", "0 to 2"});
  const Sequential of_rows{Input({3, 2}), Dense(2)};
  const Examples rows = make_examples(of_rows, MeanSquaredError(), 8, 1);
  MultiWorkerMirroredStrategy strategy(Options{.verbose = 0});
  Model model = strategy.build(of_rows);
  model.compile({.optimizer = SGD(), .loss = MeanSquaredError(), .metrics = {}});
  require_words(message_of<UsageError>([&] {
                  model.fit(rows.data, {.class_weight = {{0, 2.0}}});
                }),
                {"class_weight needs one class for each example", "(3, 2)"});
}

TEST_CASE("weights of 1 change no bit") {
  const Examples examples = make_examples(small, logits, 30, 1);
  Dataset ones = examples.data;
  ones.sample_weights = std::vector<float>(30, 1.0F);
  const CompileOptions compile{.optimizer = Adam(), .loss = logits, .metrics = {accuracy}};
  const Trained plain = train(examples.data, compile, {.epochs = 2});
  const Trained weighted = train(ones, compile, {.epochs = 2});
  CHECK(equal(plain.weights, weighted.weights));
  CHECK(plain.logs == weighted.logs);
}

TEST_CASE("weighted metrics weigh examples, metrics do not") {
  const Examples examples = make_examples(small, logits, 12, 1);
  Dataset data = examples.data;
  std::vector<float> weights(12, 0.0F);
  weights[4] = 2;
  data.sample_weights = std::move(weights);
  const Trained trained = train(
      data, {.optimizer = SGD(), .loss = logits, .metrics = {accuracy}, .weighted_metrics = {accuracy}}, {.epochs = 1});
  const double of_one = trained.logs.at("weighted_accuracy");
  CHECK((of_one == 0 || of_one == 1));
  CHECK(trained.logs.at("accuracy") > 0);
  CHECK(trained.logs.at("accuracy") < 1);
}

TEST_CASE("fit() ends with the moving averages of the weights") {
  const Examples examples = make_examples(small, logits, 24, 1);
  const auto after = [&](const SGD& sgd, int epochs) {
    return train(examples.data, {.optimizer = sgd, .loss = logits}, {.epochs = epochs}, 24).weights;
  };
  const std::vector<NamedTensor> first = after(SGD({.learning_rate = 0.5}), 1);
  const std::vector<NamedTensor> second = after(SGD({.learning_rate = 0.5}), 2);
  const std::vector<NamedTensor> averaged =
      after(SGD({.learning_rate = 0.5, .use_ema = true, .ema_momentum = 0.75}), 2);
  for (std::size_t p = 0; p < first.size(); ++p) {
    for (std::size_t i = 0; i < first[p].values.size(); ++i) {
      const float expected = 0.75F * first[p].values[i] + 0.25F * second[p].values[i];
      CHECK(averaged[p].values[i] == Approx(expected).margin(1e-6));
    }
  }
}

TEST_CASE("accumulated gradients of small batches step like a large batch") {
  const Examples examples = make_examples(small, logits, 24, 1);
  const auto after = [&](const SGD& sgd, int batch) {
    return train(examples.data, {.optimizer = sgd, .loss = logits}, {.epochs = 1, .shuffle = false}, batch).weights;
  };
  const std::vector<NamedTensor> whole = after(SGD({.learning_rate = 0.5}), 24);
  const std::vector<NamedTensor> parts = after(SGD({.learning_rate = 0.5, .gradient_accumulation_steps = 3}), 8);
  for (std::size_t p = 0; p < whole.size(); ++p) {
    CHECK(relative_error(parts[p].values, reference::Values(whole[p].values.begin(), whole[p].values.end())) < 1e-5);
  }
}
