// Trains a small model with the TensorBoard callback. Writes DIRECTORY/logs, which the real TensorBoard reads, and
// DIRECTORY/history.json.
//   interop_train_for_tensorboard DIRECTORY
#include "support/points.hpp"

#include <lockstep/lockstep.hpp>

#include <exception>
#include <filesystem>
#include <iostream>

using namespace lockstep;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: interop_train_for_tensorboard DIRECTORY\n";
    return static_cast<int>(ExitCode::usage);
  }
  try {
    const std::filesystem::path directory = argv[1];
    Options options;
    options.model_dir = directory;
    options.global_batch_size = 16;
    options.verbose = 0;
    MultiWorkerMirroredStrategy strategy{options};
    const Dataset train = testing::make_points(96);
    const Dataset validation = testing::make_points(30, 7);
    auto model = strategy.build(Sequential{Input({2}), Dense(8, {.activation = relu}), Dense(2)});
    model.compile({.optimizer = SGD({.learning_rate = 0.25}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {accuracy}});
    const LearningRateScheduler decay([](int, double rate) { return 0.9 * rate; });
    model.fit(train, {.epochs = 12,
                      .validation_data = &validation,
                      .callbacks = {decay, TensorBoard({.log_dir = directory / "logs", .update_freq = "batch"})}});
    model.save(directory / "model.h5");
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(ExitCode::internal);
  }
  return 0;
}
