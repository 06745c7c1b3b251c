// Fuzzes the readers of Keras' JSON. Any text must cause a DataError or yield a model that round-trips.
#include "checkpoint/keras/keras_config.hpp"
#include "seeds.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// Seeds, each shorter than libFuzzer's default limit of 4,096 bytes.
const std::vector<std::string>& seeds() {
  static const std::vector<std::string> texts = [] {
    ModelData model{Sequential{Input({2}), Dense(3, {.activation = softmax})}, {}, {}};
    std::vector<std::string> made;
    const Tensor image = Input({4, 4, 2});
    const Conv2D twice(2, 1);
    const Tensor merged = Add()({twice(image), twice(image), image});
    for (const Architecture& architecture : std::vector<Architecture>{
             Functional({image}, {merged, Flatten()(merged)}),
             Sequential{Input({9, 9, 2}), Conv2D(2, {3, 2}, {.strides = {2, 1}, .padding = Padding::same}),
                        BatchNormalization(), MaxPooling2D()},
             Sequential{Input({6, 6, 1}), Dropout(0.5), AveragePooling2D(2), GlobalAveragePooling2D(), Reshape({-1}),
                        Activation(relu)}}) {
      made.push_back(architecture_to_json(architecture));
    }
    for (const Optimizer& optimizer : {Optimizer(SGD({.momentum = 0.5})), Optimizer(Adam()), Optimizer(AdamW()),
                                       Optimizer(RMSprop({.centered = true}))}) {
      model.compile_state = CompileState{{optimizer, SparseCategoricalCrossentropy(), {accuracy}}, 0, {}};
      made.push_back(training_config_to_json(*model.compile_state));
      made.push_back(archive_config_to_json(model));
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
    const std::string written = architecture_to_json(model_from_json(text));
    if (architecture_to_json(model_from_json(written)) != written) std::abort();
  } catch (const DataError&) {
    // expected for most inputs
  }
}

void try_training(const std::string& text, bool of_archive) {
  std::optional<CompileState> training;
  try {
    training = of_archive ? archive_compile_config_from_json(text) : training_config_from_json(text);
  } catch (const DataError&) {
    return;
  }
  if (!training) return;
  const std::string written = training_config_to_json(*training);
  if (training_config_to_json(training_config_from_json(written)) != written) std::abort();
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
