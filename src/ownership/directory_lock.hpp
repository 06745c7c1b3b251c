// A directory's owner: the one job that may write models or backups there. A second job is refused before it trains,
// and a process that has lost the directory to a later generation of its own job publishes nothing more.
#pragma once

#include "core/file_descriptor.hpp"
#include "ownership/directory_record.hpp"
#include "ownership/lock_keeper.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

/// Holds the file ".lockstep.lock" in a directory locked (flock), with a description of the owner. The lock ends with
/// the processes that hold it, so what a killed job leaves behind locks nobody out. The file's identity is the token
/// of the owner: whoever finds another file at its path than the one that it holds has lost the directory.
class DirectoryLock {
 public:
  /// Creates the directory if it is missing. Throws PeerError, which names the owner, if another job holds the lock;
  /// UsageError under a launcher, which would try again until that job has ended and then replace its model. A lock
  /// that somebody else holds after the owner's process has died on this host, and its keeper has died or is `keeper`,
  /// is no job's: its file is replaced. So is one of another user, one that `keeper` kept, and one that a copy of
  /// another directory by hard links shares with it. Waits up to `patience_s` seconds for an earlier generation of the
  /// same job to end; takes the directory over if it does not. Shares the lock if this process holds it already. On a
  /// file system without locks, only warns and describes the owner. Throws IoError, and DataError for a damaged record.
  DirectoryLock(std::filesystem::path directory, DirectoryOwner owner, const LockKeeper& keeper = {},
                double patience_s = 10);
  ~DirectoryLock() = default;  ///< unlocks; the description stays, by which a later generation knows its job
  DirectoryLock(DirectoryLock&&) = default;
  DirectoryLock& operator=(DirectoryLock&&) = delete;

  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return path_; }
  /// The lock's file, for a launcher that this process starts and that inherits the lock.
  [[nodiscard]] const FileDescriptor& file() const noexcept { return file_; }

  /// Throws PeerError, or UsageError under a launcher if a restart would not mend it, unless this object still owns
  /// what the directory's path names: another process has taken it over, or the lock's file or the directory was
  /// removed, moved or replaced. Throws IoError if that cannot be found out. Any thread may call it.
  void require_held() const;

  /// Records that the backups in the directory are this job's own. Throws IoError.
  void record_begin();

  /// Records that the job is about to write to a file of its initial weights. Throws IoError.
  void record_overwriting_origin();
  /// Whether this object or an earlier generation of the job called record_overwriting_origin.
  [[nodiscard]] bool has_overwritten_origin() const noexcept { return owner_.has_overwritten_origin; }

  /// Records that the job has written everything: backups that are left belong to nobody. Throws IoError.
  void record_finish();

  /// Records that the job restarts because of NaN or infinity after this optimizer step. Throws IoError.
  void record_nonfinite(std::uint64_t step);
  /// What this object or an earlier generation of the job recorded; 0: nothing.
  [[nodiscard]] std::uint64_t nonfinite_step() const noexcept { return owner_.nonfinite_step; }

  /// Records what --parallelism auto chose, for the job's next generation: see recorded_parallelism.hpp. Throws
  /// IoError.
  void record_parallelism(const std::string& parallelism);

  /// Records which job began this training: `training`, or this job if that is empty and nothing was recorded before.
  /// Throws IoError.
  void record_training(const std::string& training);
  /// The job that began the training whose backups the directory had when this job took it; empty: unknown.
  [[nodiscard]] const std::string& training_before() const noexcept { return training_before_; }

  /// Unless `keeps_record`, removes the file of a finished job: an evaluator and new launchers of the job ask for the
  /// model directory's.
  void release_finished(bool keeps_record) noexcept;

  /// Whether the directory's last owner was another job, which has finished.
  [[nodiscard]] bool other_job_has_finished() const noexcept { return other_job_has_finished_; }

  /// Whether this object or an earlier generation of the job called record_begin.
  [[nodiscard]] bool has_begun() const noexcept { return owner_.has_begun; }

 private:
  [[nodiscard]] bool is_earlier_generation(const DirectoryOwner& other) const;
  [[nodiscard]] bool is_of_another_directory(const DirectoryRecord& record) const;
  [[noreturn]] void refuse(bool may_be_mended_by_restart, const std::string& problem) const;
  [[noreturn]] void refuse_other_directory() const;
  void continue_from(const DirectoryRecord& record);
  void adopt(const DirectoryOwner& last);
  void record();
  [[nodiscard]] DirectoryRecord to_record() const;
  void continue_from_kept(const LockKeeper& keeper);
  [[nodiscard]] bool try_to_succeed(const FileDescriptor& kept, const LockKeeper& keeper);
  [[nodiscard]] bool try_to_share(FileDescriptor file, const std::optional<DirectoryRecord>& record, double wait_until);
  [[nodiscard]] bool try_to_own(const LockKeeper& keeper, double wait_until);

  std::filesystem::path path_;
  FileDescriptor directory_;  ///< tells whether the path still names the same one
  DirectoryOwner owner_;
  std::optional<DirectoryOwner> before_;  ///< whose files are there until this job writes some
  std::string keeper_;
  std::string training_before_;
  bool other_job_has_finished_ = false;
  std::optional<double> dead_since_;  ///< when the lock was first seen to outlive its owner
  FileDescriptor file_;
};

}  // namespace lockstep
