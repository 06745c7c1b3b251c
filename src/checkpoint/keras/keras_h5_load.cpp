// Reads whole-model files in a subprocess, because HDF5 may crash on damaged files.
#include "checkpoint/hdf5/hdf5_reader.hpp"
#include "checkpoint/keras/keras_h5.hpp"
#include "checkpoint/keras/keras_h5_read.hpp"
#include "checkpoint/subprocess_read.hpp"

#include <cstdint>
#include <filesystem>

namespace lockstep {

ModelData load_keras_h5(const std::filesystem::path& file) {
  return read_model_in_subprocess(file, [&file] { return read_keras_h5(file); });
}

bool has_architecture(const std::filesystem::path& file) {
  std::uint64_t answer = 0;
  const auto read = [&file]() -> SendResult {
    const std::uint64_t has = Hdf5Reader(file).read_string("/", "model_config").has_value() ? 1 : 0;
    return [has](PipeWriter& output) { output.send(has); };
  };
  read_in_subprocess(file, read, [&answer](const Subprocess& child) { return child.receive(answer); });
  return answer == 1;
}

}  // namespace lockstep
