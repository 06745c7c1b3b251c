// Training converges: a small network learns to classify digits in both precisions.
#include "backend/make_backend.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/mnist.hpp>
#include <lockstep/layers/sequential.hpp>
#include <lockstep/training/model.hpp>
#include <lockstep/training/options.hpp>
#include <lockstep/training/strategy.hpp>

#include <filesystem>
#include <vector>

using namespace lockstep;

namespace {

Options silent_options(Precision precision) {
  return {.model_dir = std::filesystem::temp_directory_path() / "lockstep-fit-test",
          .global_batch_size = 64,
          .precision = precision,
          .verbose = 0};
}

void learns(Precision precision) {
  const TrainTestSplit digits = synthetic_digits(2048, 512);
  MultiWorkerMirroredStrategy strategy{silent_options(precision)};
  Model model = strategy.build(Sequential{Input({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}),
                                          MaxPooling2D(), BatchNormalization(), Flatten(), Dropout(0.2),
                                          Dense(32, {.activation = relu}), Dense(10)});
  model.compile({.optimizer = Adam({.learning_rate = 0.002}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {accuracy}});
  const double untrained = model.evaluate(digits.test).at("accuracy");
  CHECK(untrained < 0.4);
  const History first = model.fit(digits.train, {.epochs = 2, .validation_data = &digits.test});
  CHECK(first["loss"][1] < first["loss"][0]);
  const History second = model.fit(digits.train, {.epochs = 3, .validation_data = &digits.test});
  REQUIRE(second.epochs.size() == 3);
  CHECK(second["loss"][2] < first["loss"][1]);
  CHECK(second["val_accuracy"][2] > 0.9);
  CHECK(second["val_accuracy"][2] == model.evaluate(digits.test).at("accuracy"));
  CHECK(second.epochs[2].seconds > 0);
  CHECK(second.epochs[2].examples_per_second == Approx(2048 / second.epochs[2].seconds));
}

}  // namespace

TEST_CASE("a small network learns to classify digits") { learns(Precision::float32); }

TEST_CASE("a small network learns to classify digits in bfloat16") {
  try {
    make_cpu_backend(1)->require_bfloat16();
  } catch (const UsageError& error) {
    WARN("skipped: " << error.what());
    return;
  }
  learns(Precision::mixed_bfloat16);
}
