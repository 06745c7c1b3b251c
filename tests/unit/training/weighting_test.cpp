// Weights of examples and of classes, moving averages of weights, and accumulated gradients, through fit() and
// evaluate().
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/strategy.hpp>

#include <cstddef>
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
