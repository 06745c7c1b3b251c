// The directories that this process' job owns: the model directory and those of backups. Only the chief owns any.
#pragma once

#include "ownership/directory_lock.hpp"
#include "ownership/write_guard.hpp"

#include <filesystem>
#include <list>
#include <mutex>
#include <utility>

namespace lockstep {

class OwnedDirectories {
 public:
  /// `keeper` holds what the launcher kept of the generation before.
  explicit OwnedDirectories(LockKeeper keeper) : keeper_(std::move(keeper)) {}

  /// Makes the job the owner of a directory, unless it is; see DirectoryLock. The reference stays valid.
  DirectoryLock& lock(const std::filesystem::path& directory, const DirectoryOwner& owner);

  /// Throws what DirectoryLock::require_held throws if a directory that the file lies in, at any depth, was lost. For a
  /// file elsewhere, as require_not_owned_by_another. Any thread may call it.
  void require_owned(const std::filesystem::path& file) const;

  /// require_owned, for writers. It must not outlive this object.
  [[nodiscard]] WriteGuard guard() const {
    return [this](const std::filesystem::path& file) { require_owned(file); };
  }

  /// The locks, the oldest first.
  [[nodiscard]] std::list<DirectoryLock>& locks() noexcept { return locks_; }

 private:
  LockKeeper keeper_;
  mutable std::mutex mutex_;  ///< of the list, which the thread that writes files reads
  std::list<DirectoryLock> locks_;
};

}  // namespace lockstep
