// Files that the chief reads for everybody: the others may have no volume to read from.
#pragma once

#include "checkpoint/saved_model.hpp"
#include "training/runtime.hpp"

#include <functional>
#include <optional>
#include <string>

namespace lockstep {

struct SharedModel {
  std::string path;
  SavedModel model;
};

/// `read` runs on the chief alone. What it returns all ranks get; what it throws (UsageError, DataError, IoError) all
/// ranks throw. Collective.
[[nodiscard]] std::optional<SharedModel> read_on_chief(Runtime& runtime,
                                                       const std::function<std::optional<SharedModel>()>& read);

/// A model file of any form. A file of weights alone is read as `known`'s weights; without one it is refused.
[[nodiscard]] SharedModel read_model_file(Runtime& runtime, const std::filesystem::path& file,
                                          const Sequential* known = nullptr);

/// The text of a file, at most 64 MiB. Collective.
[[nodiscard]] std::string read_text_file(Runtime& runtime, const std::filesystem::path& file);

/// Throws DataError, naming file and layer, unless the file's model has weights of the shapes of `architecture`'s, all
/// of them numbers.
void check_weights(const SharedModel& file, const Sequential& architecture);

}  // namespace lockstep
