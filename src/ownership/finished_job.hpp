// Whether a job has finished: a pod or a launcher that comes back at the end finds the job done, and ends with 0.
#pragma once

#include "ownership/directory_record.hpp"

#include <filesystem>

namespace lockstep {

/// Sets the model that the last run saved in the directory, as history.json tells, and its digest if new launchers may
/// ask for it. Throws IoError if the model cannot be read.
void set_saved_model(DirectoryOwner& owner, const std::filesystem::path& directory);

/// Whether the record in a directory says that this job has finished. Throws UsageError if it says that of another
/// command, or of other contents: then two jobs have the same name; and if the job's model is not the one that it
/// wrote. A job whose model is gone has not finished. Throws IoError if the record or the model cannot be read, and
/// DataError for a damaged record.
[[nodiscard]] bool has_finished(const std::filesystem::path& directory, const DirectoryOwner& job);

}  // namespace lockstep
