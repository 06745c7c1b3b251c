// libFuzzer on the readers of Keras' JSON: any text must give a DataError, or a model that is written and read again as
// what it is.
#include "checkpoint/keras_config.hpp"
#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// Each shorter than the 4,096 bytes that libFuzzer tries by itself.
const std::vector<std::string>& seeds() {
  static const std::vector<std::string> texts = [] {
    SavedModel model{Sequential{Input({2}), Dense(3, {.activation = softmax})}, {}, {}};
    std::vector<std::string> made;
    for (const Sequential& architecture :
         {Sequential{Input({9, 9, 2}), Conv2D(2, {3, 2}, {.strides = {2, 1}, .padding = Padding::same}),
                     BatchNormalization(), MaxPooling2D()},
          Sequential{Input({6, 6, 1}), Dropout(0.5), AveragePooling2D(2), GlobalAveragePooling2D(), Reshape({-1}),
                     Activation(relu)}}) {
      made.push_back(sequential_to_json(architecture));
    }
    for (const Optimizer& optimizer : {Optimizer(SGD({.momentum = 0.5})), Optimizer(Adam()), Optimizer(AdamW()),
                                       Optimizer(RMSprop({.centered = true}))}) {
      model.training = SavedTraining{optimizer, SparseCategoricalCrossentropy(), {accuracy}, 0, {}};
      made.push_back(training_to_json(*model.training));
      made.push_back(archive_to_json(model));
    }
    return made;
  }();
  for (const std::string& text : texts) {
    if (text.size() > 4096) std::abort();
  }
  return texts;
}

void try_architecture(const std::string& text) {
  try {
    const std::string written = sequential_to_json(sequential_from_json(text));
    if (sequential_to_json(sequential_from_json(written)) != written) std::abort();
  } catch (const DataError&) {
    // what is expected of most inputs
  }
}

void try_training(const std::string& text, bool of_archive) {
  std::optional<SavedTraining> training;
  try {
    training = of_archive ? archive_training_from_json(text) : training_from_json(text);
  } catch (const DataError&) {
    return;
  }
  if (!training) return;
  const std::string written = training_to_json(*training);
  if (training_to_json(training_from_json(written)) != written) std::abort();
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  return testing::mutate_from(seeds(), data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_architecture(text);
  try_training(text, false);
  try_training(text, true);
  return 0;
}
