// Whole-model files, read behind a safety net.
#include "checkpoint/guarded_read.hpp"
#include "checkpoint/hdf5_reader.hpp"
#include "checkpoint/keras_h5.hpp"
#include "checkpoint/keras_h5_read.hpp"

#include <cstdint>
#include <filesystem>

namespace lockstep {

SavedModel load_keras_h5(const std::filesystem::path& file) {
  return read_model_guarded(file, [&file] { return read_keras_h5(file); });
}

bool has_architecture(const std::filesystem::path& file) {
  std::uint64_t answer = 0;
  const auto read = [&file]() -> SendResult {
    const std::uint64_t has = Hdf5Reader(file).text("/", "model_config").has_value() ? 1 : 0;
    return [has](ChildOutput& output) { output.send(has); };
  };
  read_guarded(file, read, [&answer](const ChildProcess& child) { return child.receive(answer); });
  return answer == 1;
}

}  // namespace lockstep
