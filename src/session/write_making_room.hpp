// A disk that the job's own backups have filled must not lose the model.
#pragma once

#include "checkpoint/backup/backup_directory.hpp"

#include <filesystem>
#include <functional>
#include <span>

namespace lockstep {

/// Calls `write`, which writes `file`. If no space is left, removes the older backups on the file's device, never the
/// newest whole one of a fit, and calls it once more. Throws what `write` throws.
void write_making_room(const std::filesystem::path& file, std::span<const BackupDirectory> backups,
                       const std::function<void()>& write);

}  // namespace lockstep
