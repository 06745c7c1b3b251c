// Fuzzes the byte stream in which a child that reads a file sends a model to its parent. A damaged file may make the
// child send anything: it must end early, be a DataError, or be a model that round-trips.
#include "checkpoint/model_serialization.hpp"
#include "seeds.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

/// More than any input holds, so that a reader that trusts the sizes in a stream is caught.
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 20U;

std::string written(const ModelData& model) {
  std::string bytes;
  write_model(
      [&](std::span<const std::byte> part) { bytes.append(reinterpret_cast<const char*>(part.data()), part.size()); },
      model);
  return bytes;
}

std::optional<ModelData> read(std::span<const std::byte> bytes) {
  return read_model(
      [&](std::span<std::byte> part) {
        if (part.size() > bytes.size()) return false;
        std::copy_n(bytes.begin(), part.size(), part.begin());
        bytes = bytes.subspan(part.size());
        return true;
      },
      "fuzz.keras", max_bytes);
}

ModelData with_values(ModelData model) {
  for (NamedTensor& tensor : model.weights) tensor.values.resize(static_cast<std::size_t>(tensor.shape.elements()));
  if (model.compile_state) fill_initial_slots(model.compile_state->optimizer, model.compile_state->slots);
  return model;
}

/// A model alone, one that is compiled, and one of a backup. Each is shorter than libFuzzer's limit of 4,096 bytes.
std::vector<std::string> models() {
  const Architecture architecture = Sequential{Input({2}), Dense(3, {.activation = softmax})};
  const Optimizer optimizer = SGD({.momentum = 0.5});
  ModelData model{architecture, weights_for(architecture), {}, {}};
  std::vector<std::string> seeds{written(with_values(model))};
  model.compile_state =
      CompileState{{{optimizer, SparseCategoricalCrossentropy(), {accuracy}}}, 5, slots_for(architecture, optimizer)};
  seeds.push_back(written(with_values(model)));
  model.training_state = SerializedTrainingState{"{}", {{"0", Shape({2, 1}), {1, 2}}, {"1", Shape({}), {3}}}};
  seeds.push_back(written(with_values(model)));
  for (const std::string& seed : seeds) {
    if (seed.size() > 4096 || !read(std::as_bytes(std::span(seed)))) std::abort();
  }
  return seeds;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  static const std::vector<std::string> seeds = models();
  return testing::mutate_from(seeds, data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::optional<ModelData> model = read(std::as_bytes(std::span(data, size)));
    if (!model) return 0;
    const std::string bytes = written(*model);
    const std::optional<ModelData> again = read(std::as_bytes(std::span(bytes)));
    if (!again || written(*again) != bytes) std::abort();
  } catch (const DataError&) {  // expected for most inputs
  }
  return 0;
}
