// Saves models repeatedly, for tests that kill it, fill its disk or make its system calls fail, and checks the
// resulting file. Version K of a model is a function of (SEED, K), so that tests need to remember only K.
//   checkpoint_probe save FILE SEED FIRST COUNT    prints "saving K" before and "saved K" after each of COUNT saves
//   checkpoint_probe check FILE SEED               prints the version in FILE if it is correct in every bit
//   checkpoint_probe same FILE OTHER               checks that both files load and hold the same model
// Uses the exit codes of all programs; also exits with 65 if a file loads but holds no saved version.
#include "checkpoint/keras/keras_config.hpp"
#include "checkpoint/keras/keras_weights.hpp"
#include "checkpoint/model_file.hpp"
#include "core/random.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

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

void fill(std::vector<NamedTensor>& tensors, RandomStream& random) {
  for (NamedTensor& tensor : tensors) {
    tensor.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
    for (float& value : tensor.values) value = random.uniform();
  }
}

/// About 1 MB with the optimizer's slots. Layers have equal shapes, so that mixed-up tensors would load. The learning
/// rate is exact as a float, which is how .weights.h5 stores it.
ModelData version(std::uint64_t seed, std::uint64_t number) {
  ModelData model{Sequential{Input({16, 16, 1}), Conv2D(8, 3, {.activation = relu}), BatchNormalization(), Flatten(),
                             Dense(48, {.activation = relu}), Dense(48, {.activation = relu}),
                             Dense(48, {.activation = relu}), Dense(10)},
                  {},
                  {}};
  RandomStream random(seed, RandomPurpose::test, number);
  const Adam optimizer{.learning_rate = static_cast<double>(1 + number % 1000) / 1024};
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  model.compile_state = CompileState{{optimizer, SparseCategoricalCrossentropy({.from_logits = true}), {accuracy}},
                                     static_cast<std::int64_t>(number),
                                     slots_for(model.architecture, optimizer)};
  fill(model.compile_state->slots, random);
  return model;
}

/// Weights files have no architecture: they load into version 0 of the model.
ModelData load(const std::filesystem::path& file) {
  if (model_format_of(file) == ModelFormat::weights) return load_keras_weights(file, version(0, 0));
  return load_model(file);
}

bool equal(const std::vector<NamedTensor>& left, const std::vector<NamedTensor>& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const std::vector<float>& values = left[i].values;
    if (left[i].shape != right[i].shape || values.size() != right[i].values.size()) return false;
    if (std::memcmp(values.data(), right[i].values.data(), values.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

/// Compares everything that files hold. The JSON contains all options of layers, optimizer and loss.
bool equal(const ModelData& left, const ModelData& right) {
  return left.compile_state && right.compile_state &&
         architecture_to_json(left.architecture) == architecture_to_json(right.architecture) &&
         training_config_to_json(*left.compile_state) == training_config_to_json(*right.compile_state) &&
         left.compile_state->iteration == right.compile_state->iteration && equal(left.weights, right.weights) &&
         equal(left.compile_state->slots, right.compile_state->slots);
}

void say(const std::string& line) {
  // One write without buffering: the test reads this line and may kill this process at any time.
  if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(1);
}

void save(const std::filesystem::path& file, std::uint64_t seed, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t number = first; number < first + count; ++number) {
    const ModelData model = version(seed, number);
    say("saving " + std::to_string(number) + "\n");
    save_model(file, model);
    say("saved " + std::to_string(number) + "\n");
  }
}

void check(const std::filesystem::path& file, std::uint64_t seed) {
  const ModelData found = load(file);
  const auto number = found.compile_state ? static_cast<std::uint64_t>(found.compile_state->iteration) : 0;
  if (!equal(found, version(seed, number))) {
    throw DataError(file.string() + " loads, but is not version " + std::to_string(number));
  }
  std::cout << number << '\n';
}

void compare(const std::filesystem::path& file, const std::filesystem::path& other) {
  const ModelData left = load(file);
  if (!equal(left, load(other))) {
    throw DataError(file.string() + " and " + other.string() + " hold different models");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  (void)std::signal(SIGXFSZ, SIG_IGN);  // as in all programs
  try {
    if (args.size() == 5 && args[0] == "save") {
      save(args[1], std::stoull(args[2]), std::stoull(args[3]), std::stoull(args[4]));
    } else if (args.size() == 3 && args[0] == "check") {
      check(args[1], std::stoull(args[2]));
    } else if (args.size() == 3 && args[0] == "same") {
      compare(args[1], args[2]);
    } else {
      throw UsageError("usage: see the top of tests/programs/checkpoint_probe.cpp");
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
