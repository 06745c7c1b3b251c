// Whole-model files, read behind a safety net.
#include "checkpoint/guarded_read.hpp"
#include "checkpoint/keras_h5.hpp"
#include "checkpoint/keras_h5_read.hpp"

#include <filesystem>

namespace lockstep {

SavedModel load_keras_h5(const std::filesystem::path& file) {
  return read_model_guarded(file, [&file] { return read_keras_h5(file); });
}

}  // namespace lockstep
