// See directory_lock.hpp.
#include "ownership/directory_lock.hpp"

#include "core/clock.hpp"
#include "core/file_system.hpp"
#include "core/log.hpp"
#include "core/process_identity.hpp"
#include "ownership/finished_job.hpp"
#include "ownership/write_guard.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

void require_record_file(const FileDescriptor& file, const fs::path& path) {
  struct stat status {};
  if (fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode)) return;
  throw IoError(path.string() + " is no regular file, so it cannot record a job; remove it");
}

std::uint64_t inode_of(const FileDescriptor& directory) {
  struct stat status {};
  return fstat(directory.number(), &status) == 0 ? status.st_ino : 0;
}

/// Whether a copy of the directory by hard links shares the file, in which it is another job's record.
bool is_linked_elsewhere(const FileDescriptor& file) {
  struct stat status {};
  return fstat(file.number(), &status) == 0 && status.st_nlink > 1;
}

}  // namespace

DirectoryLock::DirectoryLock(fs::path directory, DirectoryOwner owner, const LockKeeper& keeper, double patience_s)
    : path_(std::move(directory)), owner_(std::move(owner)), keeper_(keeper.process) {
  create_directories_durably(path_);
  directory_ = FileDescriptor(path_, O_PATH | O_DIRECTORY);
  const double begin = monotonic_seconds();
  bool is_reported = false;
  while (!try_to_own(keeper, begin + patience_s)) {
    if (!is_reported && monotonic_seconds() > begin + 1) {
      is_reported = true;
      log_info(fmt::format("waiting up to {:g} s for an earlier generation of this job to release {}", patience_s,
                           path_.string()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

bool DirectoryLock::is_earlier_generation(const DirectoryOwner& other) const {
  return other.job == owner_.job && other.launch == owner_.launch && other.generation < owner_.generation;
}

/// A record that a copy of its directory by hard links shares says nothing about what is in the copy.
bool DirectoryLock::is_of_another_directory(const DirectoryRecord& record) const {
  return record.directory_inode != 0 && record.directory_inode != inode_of(directory_);
}

void DirectoryLock::refuse(bool may_be_mended_by_restart, const std::string& problem) const {
  if (owner_.generation > 0 && !may_be_mended_by_restart) throw UsageError(problem);
  throw PeerError(problem);
}

void DirectoryLock::refuse_other_directory() const {
  refuse(false, fmt::format("{} is not the directory that this job took: it was moved, replaced or removed meanwhile, "
                            "so this process writes nothing more there; put it back and start again",
                            path_.string()));
}

void DirectoryLock::continue_from(const DirectoryRecord& record) {
  const DirectoryOwner& last = record.owner_of_files();
  const bool is_of_here = !is_of_another_directory(record);
  training_before_ = last.training.empty() ? last.job : last.training;
  other_job_has_finished_ = last.has_finished && last.job != owner_.job && is_of_here;
  if (is_of_here && has_files(last)) before_ = last;
  // A new launcher of the job counts generations from 1 again.
  const bool is_same_job = last.job == owner_.job && owner_.outlives_launchers &&
                           !are_known_to_differ(last.command, owner_.command) &&
                           !are_known_to_differ(last.contents.settings, owner_.contents.settings);
  if (is_same_job || is_earlier_generation(last)) adopt(last);
}

void DirectoryLock::adopt(const DirectoryOwner& last) {
  owner_.has_begun = last.has_begun;
  owner_.has_overwritten_origin = last.has_overwritten_origin;
  owner_.nonfinite_step = last.nonfinite_step;
  owner_.parallelism = last.parallelism;
  owner_.training = last.training;
}

/// Replaces the lock file that the keeper kept, so that a process of the generation before, if one still runs, notices
/// before it publishes anything. The directory is locked all the while. Returns false if the call must be repeated.
bool DirectoryLock::try_to_succeed(const FileDescriptor& kept, const LockKeeper& keeper) {
  const fs::path path = record_file_in(path_);
  const fs::path next = path.string() + ".next";
  const std::optional<DirectoryRecord> record = read_record(kept, path);
  if (!record) {
    throw IoError(path.string() +
                  " was emptied: it no longer tells which backups are this job's; start the same command "
                  "again with --resume auto to go on from them");
  }
  continue_from(*record);
  unlink(next.c_str());  // of a generation that was killed here
  FileDescriptor file(next, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (!file.valid() && errno == EEXIST)
    throw IoError(next.string() + " is in the way and is no file of this job; remove it");
  if (!file.valid()) throw_io_error("cannot write " + next.string(), errno);
  (void)try_lock(file);
  const int problem = write_record(file, to_record());
  if (problem == 0) keeper.keep(file);
  if (problem != 0 || !is_path_of(path, kept) || rename(next.c_str(), path.c_str()) != 0) {
    const int error = problem != 0 ? problem : errno;
    const bool is_ours = is_path_of(path, kept);
    unlink(next.c_str());
    if (is_ours) throw_io_error("cannot write " + path.string(), error);
    return false;
  }
  file_ = std::move(file);
  return true;
}

/// Of the directory that this path named, if its lock file was removed, what was recorded in it. Throws if the
/// directory itself is another one now.
void DirectoryLock::continue_from_kept(const LockKeeper& keeper) {
  for (const FileDescriptor& kept : keeper.kept) {
    struct stat status {};
    const bool was_removed = fstat(kept.number(), &status) != 0 || status.st_nlink == 0;
    std::optional<DirectoryRecord> record;
    try {
      record = read_record(kept, record_file_in(path_));
    } catch (const Error&) {  // a damaged record that was removed, or a file of a script above the trainer
      continue;
    }
    if (!record || record->path_digest != digest_of_path(path_)) continue;
    if (!was_removed && is_of_another_directory(*record)) refuse_other_directory();
    continue_from(*record);  // the last one is the newest
  }
}

/// Of a lock that another process holds, or this one by another descriptor. Returns false if it is to be tried again.
bool DirectoryLock::try_to_share(FileDescriptor file, const std::optional<DirectoryRecord>& record, double wait_until) {
  const fs::path path = record_file_in(path_);
  // A new file is a new lock. The old owner, if it lives, notices before it publishes anything.
  const auto replace_file = [&] {
    if (is_path_of(path, file)) unlink(path.c_str());
  };
  if (record && record->process == process_identity()) {
    adopt(record->owner);
    before_ = record->before;
    file_ = std::move(file);
    return true;
  }
  if (record && is_linked_elsewhere(file) && is_of_another_directory(*record)) {
    continue_from(*record);
    replace_file();
    return false;
  }
  // A script between the launcher and this process may have closed what the launcher has kept.
  const bool is_kept = record && !record->keeper.empty() && record->keeper != keeper_ && !has_died(record->keeper);
  if (record && has_died(record->process) && !is_kept) {
    // The owner's successor, which has the lock but has not written its record yet, does so within this time.
    constexpr double until_recorded_s = 2;
    continue_from(*record);  // the next lock file has no record
    if (!dead_since_) dead_since_ = monotonic_seconds();
    if (monotonic_seconds() > *dead_since_ + until_recorded_s) replace_file();
    return false;
  }
  if (record && is_earlier_generation(record->owner)) {
    continue_from(*record);
    if (monotonic_seconds() > wait_until) replace_file();
    return false;
  }
  const bool has_same_name = record && record->owner.job == owner_.job;
  if (has_same_name && are_known_to_differ(record->owner.command, owner_.command)) {
    refuse(false, fmt::format("{} belongs to {}, which is still running with another command line or other variables; "
                              "name this job otherwise (--job-id, LOCKSTEP_JOB_ID), and choose another directory",
                              path_.string(), describe(record)));
  }
  refuse(has_same_name,
         fmt::format("{} belongs to {}, which is still running; wait for it to end, or choose another directory",
                     path_.string(), describe(record)));
}

/// Returns false if the call must be repeated.
bool DirectoryLock::try_to_own(const LockKeeper& keeper, double wait_until) {
  const fs::path path = record_file_in(path_);
  for (const FileDescriptor& kept : keeper.kept) {
    if (is_path_of(path, kept)) return try_to_succeed(kept, keeper);
  }
  continue_from_kept(keeper);
  FileDescriptor file(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
  const bool is_of_other_user = !file.valid() && errno == EACCES;
  if (is_of_other_user) file = open_for_lock(path);
  if (!file.valid() && errno == ELOOP) throw IoError(path.string() + " is a link, not a record of a job; remove it");
  if (!file.valid() && errno == ENOENT && !is_path_of(path_, directory_)) {  // a job that has ended has removed it
    create_directories_durably(path_);
    directory_ = FileDescriptor(path_, O_PATH | O_DIRECTORY);
    return false;
  }
  if (!file.valid()) throw_io_error("cannot write " + path.string(), is_of_other_user ? EACCES : errno);
  require_record_file(file, path);
  const int error = try_lock(file);
  const std::optional<DirectoryRecord> record = read_record(file, path);
  if (error == EWOULDBLOCK) return try_to_share(std::move(file), record, wait_until);
  if (error != 0) {
    log_warning(fmt::format(
        "{} is on a file system without locks ({}), so a second job that writes there would not be noticed; "
        "make sure that no other job uses this directory",
        path_.string(), std::generic_category().message(error)));
  } else if (!is_path_of(path, file)) {
    return false;
  }
  if (record) continue_from(*record);
  if (is_of_other_user || is_linked_elsewhere(file)) {
    if (unlink(path.c_str()) != 0) throw_io_error("cannot replace " + path.string(), errno);
    file = FileDescriptor(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (!file.valid() || try_lock(file) == EWOULDBLOCK) return false;
  }
  if (const int problem = write_record(file, to_record()); problem != 0) {
    if (!record) unlink(path.c_str());
    throw_io_error("cannot write " + path.string(), problem);
  }
  if (keeper.keep) keeper.keep(file);
  file_ = std::move(file);
  return true;
}

void DirectoryLock::require_held() const {
  const fs::path path = record_file_in(path_);
  if (is_path_of(path, file_)) return;
  const FileDescriptor other = open_for_lock(path);
  if (!other.valid() && errno != ENOENT && errno != ENOTDIR)
    throw_io_error(fmt::format("cannot write to {}: cannot read {}", path_.string(), path.string()), errno);
  if (other.valid()) {
    const std::optional<DirectoryRecord> record = read_record(other, path);
    refuse(record && record->owner.job == owner_.job,
           fmt::format("{} belongs to {} now, so this process writes nothing more there", path_.string(),
                       describe(record)));
  }
  if (is_path_of(path_, directory_)) {
    refuse(true, fmt::format("{} was removed, by which this job owns its directory, so this process writes nothing "
                             "more there; start again, and leave the file until the job has ended",
                             path.string()));
  }
  refuse_other_directory();
}

void DirectoryLock::record_begin() {
  owner_.has_begun = true;
  record();
}

void DirectoryLock::record_overwriting_origin() {
  if (std::exchange(owner_.has_overwritten_origin, true)) return;
  record();
}

void DirectoryLock::record_finish() {
  owner_.has_finished = true;
  set_saved_model(owner_, path_);
  record();
}

void DirectoryLock::record_nonfinite(std::uint64_t step) {
  owner_.nonfinite_step = step;
  record();
}

void DirectoryLock::record_parallelism(const std::string& parallelism) {
  if (std::exchange(owner_.parallelism, parallelism) != parallelism) record();
}

void DirectoryLock::record_training(const std::string& training) {
  if (training.empty() && !owner_.training.empty()) return;
  const std::string& first = training.empty() ? owner_.job : training;
  if (std::exchange(owner_.training, first) != first) record();
}

DirectoryRecord DirectoryLock::to_record() const {
  return {.owner = owner_,
          .process = process_identity(),
          .keeper = keeper_,
          .path_digest = digest_of_path(path_),
          .directory_inode = inode_of(directory_),
          .before = has_files(owner_) ? std::nullopt : before_};
}

void DirectoryLock::record() {
  if (const int problem = write_record(file_, to_record()); problem != 0)
    throw_io_error("cannot write " + record_file_in(path_).string(), problem);
}

void DirectoryLock::release_finished(bool keeps_record) noexcept {
  const fs::path path = record_file_in(path_);
  if (!is_path_of(path, file_)) return;
  if (!keeps_record) unlink(path.c_str());
}

void require_not_owned_by_another(const fs::path& file) {
  const fs::path directory = directory_of(file);
  const FileDescriptor lock = open_for_lock(record_file_in(directory));
  if (!lock.valid() && errno == ENOENT) return;
  if (!lock.valid()) {
    throw_io_error(fmt::format("cannot write {}: cannot read {}", file.string(), record_file_in(directory).string()),
                   errno);
  }
  const std::optional<DirectoryRecord> record = read_record(lock, record_file_in(directory));
  if (record && record->process == process_identity()) return;
  if (try_lock(lock) != EWOULDBLOCK) return;
  throw PeerError(fmt::format("{} belongs to {} now, so this process writes nothing more there", directory.string(),
                              describe(record)));
}

}  // namespace lockstep
