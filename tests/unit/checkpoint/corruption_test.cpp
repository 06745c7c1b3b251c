// No silent corruption: a file whose bytes were flipped, zeroed, exchanged, cut off or overwritten by other parts of
// the file still yields the same model or is rejected, within bounds of time and memory. The damage is the same in
// every run. For more and other damage:
//   LOCKSTEP_DAMAGE_COUNT=20000 LOCKSTEP_DAMAGE_SEED=7 test_checkpoint "damage*"
#include "checkpoint/file_tensors.hpp"
#include "checkpoint/keras/keras_weights.hpp"
#include "checkpoint/model_file.hpp"
#include "core/random.hpp"
#include "random_model.hpp"
#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/scratch_directory.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <sys/resource.h>
#include <sys/time.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Bytes = std::vector<char>;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Damages one place of a file, as storage may. Returns a description.
std::string damage(Bytes& bytes, RandomStream& random) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  const auto somewhere = [&](std::uint32_t length) { return random.below(size - std::min(length, size - 1)); };
  const std::uint32_t at = somewhere(8);
  const std::string place = " at " + std::to_string(at);
  switch (random.below(7)) {
    case 0:
    case 1: {
      const std::uint32_t bit = random.below(8);
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      return "bit " + std::to_string(bit) + " flipped" + place;
    }
    case 2: {
      bytes[at] = static_cast<char>(random.next());
      return "a random byte" + place;
    }
    case 3: {
      const std::uint32_t length = std::min(1U << random.below(10), size - at);
      std::fill_n(bytes.begin() + at, length, '\0');
      return std::to_string(length) + " zeros" + place;
    }
    case 4: {
      bytes.resize(at);
      return "cut off" + place;
    }
    case 5: {  // addresses, sizes and values have eight bytes
      const std::uint32_t left = at / 8 * 8;
      const std::uint32_t right = somewhere(8) / 8 * 8;
      std::swap_ranges(bytes.begin() + left, bytes.begin() + left + 8, bytes.begin() + right);
      return "words exchanged at " + std::to_string(left) + " and " + std::to_string(right);
    }
    default: {  // a misdirected write
      const std::uint32_t length = std::min(8U << random.below(7), size / 2);
      const std::uint32_t from = somewhere(length);
      const std::uint32_t to = somewhere(length);
      std::memmove(bytes.data() + to, bytes.data() + from, length);
      return std::to_string(length) + " bytes from " + std::to_string(from) + " to " + std::to_string(to);
    }
  }
}

/// Random models, and models of layers with equal shapes, which a faulty reader could mix up.
ModelData model_of(std::uint64_t seed, const std::string& form) {
  if (seed % 2 == 0) return random_model(seed);
  RandomStream random(seed, RandomPurpose::test, 20);
  ModelData model{Sequential{Input({4}), Dense(4), Dense(4), Dense(4)}, {}, {}};
  model.weights = weights_for(model.architecture);
  fill(model.weights, random);
  const Optimizer optimizer = seed % 4 == 1 ? Optimizer(Adam()) : Optimizer(SGD());
  model.compile_state = CompileState{{optimizer, MeanSquaredError(), {accuracy}}, 1000, {}};
  model.compile_state->slots = slots_for(model.architecture, optimizer);
  fill(model.compile_state->slots, random);
  if (form == ".h5") {  // a backup
    model.training_state = SerializedTrainingState{"{\"step\": " + std::to_string(seed) + "}",
                                                   {{"0", Shape{4, 4}, {}}, {"1", Shape{4, 4}, {}}}};
    fill(model.training_state->arrays, random);
  }
  return model;
}

bool same_arrays(const std::vector<NamedTensor>& left, const std::vector<NamedTensor>& right, bool with_names) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [&](const auto& one, const auto& other) {
    return (one.name == other.name || !with_names) && one.shape == other.shape &&
           one.values.size() == other.values.size() &&
           std::memcmp(one.values.data(), other.values.data(), one.values.size() * sizeof(float)) == 0;
  });
}

bool same_state(const ModelData& left, const ModelData& right) {
  if (left.training_state.has_value() != right.training_state.has_value()) return false;
  return !left.training_state || (left.training_state->text == right.training_state->text &&
                                  same_arrays(left.training_state->arrays, right.training_state->arrays, false));
}

/// Returns nullopt if the file is rejected as damaged.
std::optional<ModelData> try_load(const fs::path& file, const ModelData& onto) {
  try {
    return model_format_of(file) == ModelFormat::weights ? load_keras_weights(file, onto) : load_model(file);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

/// Whether the tensors that `lockstep inspect` shows of a weights file are unchanged, or the file is rejected.
bool stored_as_before(const fs::path& file, const FileTensors& before) {
  try {
    const FileTensors now = load_file_tensors(file);
    return same_arrays(now.weights, before.weights, true) && same_arrays(now.optimizer, before.optimizer, true) &&
           now.iteration == before.iteration;
  } catch (const DataError&) {
    return true;
  }
}

/// In seconds, of the children that have ended.
double processor_time_of_children() {
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(children.ru_utime) + seconds(children.ru_stime);
}

}  // namespace

TEST_CASE("damage is detected or has no effect") {
  const std::uint64_t count = number_from("LOCKSTEP_DAMAGE_COUNT", 200);
  const std::uint64_t first = number_from("LOCKSTEP_DAMAGE_SEED", 1) * 1'000'000;
  const ScratchDirectory scratch;
  for (const std::string form : {".keras", ".h5", ".weights.h5"}) {
    const fs::path whole = scratch / ("m" + form);
    const fs::path damaged = scratch / ("damaged" + form);
    ModelData model = model_of(first, form);
    FileTensors stored;
    std::uint64_t refused = 0;
    double slowest = 0;
    for (std::uint64_t lot = 0; lot < count; ++lot) {
      if (lot % 20 == 0) {
        model = model_of(first + lot / 20, form);
        save_model(whole, model);
        if (form != ".keras") stored = load_file_tensors(whole);
      }
      Bytes bytes = bytes_of(whole);
      RandomStream random(first + lot, RandomPurpose::test, 21);
      const std::string what = damage(bytes, random);
      write_bytes(damaged, bytes);
      CAPTURE(form, lot, first, what);

      const double began = processor_time_of_children();
      const std::optional<ModelData> found = try_load(damaged, model);
      slowest = std::max(slowest, processor_time_of_children() - began);
      std::string why;
      const bool right = !found || (equal(model, *found, why) && same_state(model, *found));
      CAPTURE(why);
      CHECK(right);
      if (!found) ++refused;
      if (form != ".keras") CHECK(stored_as_before(damaged, stored));
    }
    std::cout << form << ": " << refused << " of " << count << " damaged files refused, the slowest in " << slowest
              << " s\n";
    CHECK(refused > count / 3);
    CHECK(refused < count);  // some damage hits unused bytes
    CHECK(slowest < 3);      // the limit of such small files is 0.5 to 2 s
  }
  rusage children{};
  REQUIRE(getrusage(RUSAGE_CHILDREN, &children) == 0);
  CHECK(children.ru_maxrss < 2'000'000);  // kilobytes
}
