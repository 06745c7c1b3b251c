// Saves models over and over, for tests that kill it, fill its disk or let its system calls fail, and tells what a file
// holds afterwards. Version K of a model is known from (SEED, K) alone, so that nothing need be remembered but K.
//   checkpoint_probe save FILE SEED FIRST COUNT    says "saving K" before and "saved K" after each of COUNT saves
//   checkpoint_probe check FILE SEED               prints the version that FILE holds if every bit of it is right
//   checkpoint_probe same FILE OTHER               whether both load and hold the same
// Ends with the codes of all programs, 65 also if a file loads but holds no version that was ever saved.
#include "checkpoint/keras_config.hpp"
#include "checkpoint/keras_weights.hpp"
#include "checkpoint/model_file.hpp"
#include "core/random.hpp"

#include <lockstep/core/error.hpp>

#include <unistd.h>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

void fill(std::vector<SavedTensor>& tensors, RandomStream& random) {
  for (SavedTensor& tensor : tensors) {
    tensor.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    for (float& value : tensor.values) value = random.uniform();
  }
}

/// Layers of equal shapes, so that one can be taken for another; about 1 MB with the optimizer's arrays. The learning
/// rate is the same as a float, as which .weights.h5 keeps it.
SavedModel version(std::uint64_t seed, std::uint64_t number) {
  SavedModel model{Sequential{Input({16, 16, 1}), Conv2D(8, 3, {.activation = relu}), BatchNormalization(), Flatten(),
                              Dense(48, {.activation = relu}), Dense(48, {.activation = relu}),
                              Dense(48, {.activation = relu}), Dense(10)},
                   {},
                   {}};
  RandomStream random(seed, RandomPurpose::test, number);
  const Adam optimizer{{.learning_rate = static_cast<double>(1 + number % 1000) / 1024}};
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  model.training = SavedTraining{optimizer,
                                 SparseCategoricalCrossentropy({.from_logits = true}),
                                 {accuracy},
                                 static_cast<std::int64_t>(number),
                                 slots_for(model.architecture, optimizer)};
  fill(model.training->slots, random);
  return model;
}

/// Of files without an architecture, the rest belongs to this model.
SavedModel load(const std::filesystem::path& file) {
  if (model_format_of(file) == ModelFormat::weights) return load_keras_weights(file, version(0, 0));
  return load_model(file);
}

bool equal(const std::vector<SavedTensor>& left, const std::vector<SavedTensor>& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const std::vector<float>& values = left[i].values;
    if (left[i].shape != right[i].shape || values.size() != right[i].values.size()) return false;
    if (std::memcmp(values.data(), right[i].values.data(), values.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

/// Every bit that files hold; JSON names every option of layers, optimizer and loss.
bool equal(const SavedModel& left, const SavedModel& right) {
  return left.training && right.training &&
         sequential_to_json(left.architecture) == sequential_to_json(right.architecture) &&
         training_to_json(*left.training) == training_to_json(*right.training) &&
         left.training->iteration == right.training->iteration && equal(left.weights, right.weights) &&
         equal(left.training->slots, right.training->slots);
}

void say(const std::string& line) {
  // At once and whole: whoever reads this kills us in between.
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(1);
}

void save(const std::filesystem::path& file, std::uint64_t seed, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t number = first; number < first + count; ++number) {
    const SavedModel model = version(seed, number);
    say("saving " + std::to_string(number) + "\n");
    save_model(file, model);
    say("saved " + std::to_string(number) + "\n");
  }
}

void check(const std::filesystem::path& file, std::uint64_t seed) {
  const SavedModel found = load(file);
  const auto number = found.training ? static_cast<std::uint64_t>(found.training->iteration) : 0;
  if (!equal(found, version(seed, number))) {
    throw DataError(file.string() + " loads, but is not version " + std::to_string(number) + ".");
  }
  std::cout << number << '\n';
}

void compare(const std::filesystem::path& file, const std::filesystem::path& other) {
  const SavedModel left = load(file);
  if (!equal(left, load(other))) {
    throw DataError(file.string() + " and " + other.string() + " hold different models.");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  (void)std::signal(SIGXFSZ, SIG_IGN);  // as all programs do
  try {
    if (args.size() == 5 && args[0] == "save") {
      save(args[1], std::stoull(args[2]), std::stoull(args[3]), std::stoull(args[4]));
    } else if (args.size() == 3 && args[0] == "check") {
      check(args[1], std::stoull(args[2]));
    } else if (args.size() == 3 && args[0] == "same") {
      compare(args[1], args[2]);
    } else {
      throw UsageError("The top of tests/programs/checkpoint_probe.cpp tells how to call this.");
    }
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return static_cast<int>(ExitCode::internal);
  }
  return 0;
}
