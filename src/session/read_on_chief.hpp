// Files that the chief reads and broadcasts: the other ranks may not have the volume mounted.
#pragma once

#include "checkpoint/model_data.hpp"
#include "session/run_context.hpp"

#include <functional>
#include <optional>
#include <string>

namespace lockstep {

struct LoadedModel {
  std::string path;
  ModelData model;
};

/// Runs `read` on the chief and returns its result on all ranks. If it throws an Error, all ranks throw it. Collective.
[[nodiscard]] std::optional<LoadedModel> read_on_chief(RunContext& run_context,
                                                       const std::function<std::optional<LoadedModel>()>& read);

/// Runs `work` on the chief. If it throws an Error, all ranks throw it: the user sees one error, not many about a lost
/// peer. Collective.
void run_on_chief(RunContext& run_context, const std::function<void()>& work);

/// Makes this job the owner of the model directory (see DirectoryLock). Throws PeerError on all ranks if another job
/// owns it. If it never resumes from backups, records that the training is this job's own. Collective; may be called
/// again.
void own_model_directory(RunContext& run_context, const JobContents& contents, bool may_resume);

/// Reads a .keras, .h5 or .weights.h5 file. A file without an architecture holds weights of `known`; if that is null,
/// throws DataError. Collective.
[[nodiscard]] LoadedModel read_model_file(RunContext& run_context, const std::filesystem::path& file,
                                          const Architecture* known = nullptr);

/// The text of a file, at most 64 MiB. Throws IoError if it is larger or cannot be read. Collective.
[[nodiscard]] std::string read_text_file(RunContext& run_context, const std::filesystem::path& file);

/// Throws DataError, naming file and weight, unless the file's weights are finite and have the shapes of
/// `architecture`'s.
void check_weights(const std::string& path, const std::vector<NamedTensor>& weights, const Architecture& architecture);

}  // namespace lockstep
