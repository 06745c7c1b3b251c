// What a job's writers ask before they publish or remove a file.
#pragma once

#include <filesystem>
#include <functional>

namespace lockstep {

/// Called right before a file is published or removed. Throws if its writer may not do that any more, because another
/// job has taken the directory over. Empty for a command, which owns no directory.
using WriteGuard = std::function<void(const std::filesystem::path& file)>;

/// The guard of a process that has locked no directory. Throws PeerError if another process holds the lock of the
/// file's directory: its job owns the files there. Throws IoError if that cannot be found out.
void require_not_owned_by_another(const std::filesystem::path& file);

}  // namespace lockstep
