// See directory_lock.hpp.
#include "checkpoint/directory_lock.hpp"

#include "checkpoint/file_system.hpp"
#include "checkpoint/write_guard.hpp"
#include "core/clock.hpp"
#include "core/digest.hpp"
#include "core/log.hpp"
#include "core/printable.hpp"
#include "core/process_identity.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {
namespace {

constexpr std::size_t max_record_bytes = 4096;

fs::path lock_file_in(const fs::path& directory) { return directory / ".lockstep.lock"; }

struct Record {
  DirectoryOwner owner;
  std::string process;
  std::string keeper;
  std::string path_digest;
};

std::optional<Record> read_record(const FileDescriptor& file) {
  std::array<char, max_record_bytes> bytes{};
  const ssize_t size = pread(file.number(), bytes.data(), bytes.size(), 0);
  if (size <= 0) return std::nullopt;
  const auto json = nlohmann::json::parse(bytes.begin(), bytes.begin() + size, nullptr, false);
  const auto text = [&json](const char* key) {
    const auto value = json.find(key);
    return value != json.end() && value->is_string() ? value->get<std::string>() : std::string();
  };
  if (!json.is_object()) return std::nullopt;
  const auto number = [&json](const char* key) {
    const auto value = json.find(key);
    return value != json.end() && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
  };
  const auto flag = [&json](const char* key) {
    const auto value = json.find(key);
    return value != json.end() && *value == true;
  };
  return Record{{.job = text("job"),
                 .command = text("command"),
                 .contents = {.settings = text("settings"), .origin = text("origin")},
                 .launch = text("launch"),
                 .generation = number("generation"),
                 .program = text("program"),
                 .host = text("host"),
                 .has_begun = flag("has_begun"),
                 .has_finished = flag("has_finished"),
                 .model = text("model"),
                 .model_digest = text("model_digest"),
                 .has_overwritten_origin = flag("has_overwritten_origin"),
                 .nonfinite_step = number("nonfinite_step")},
                text("process"),
                text("keeper"),
                text("path_digest")};
}

void require_record_file(const FileDescriptor& file, const fs::path& path) {
  struct stat status {};
  if (fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode)) return;
  throw IoError(path.string() + " is no regular file, so it cannot record a job; remove it");
}

/// A path may be longer than a record.
std::string digest_of_path(const fs::path& path) { return to_hex(fnv1a(path.native())); }

/// Returns 0 or errno.
int write_record(const FileDescriptor& file, const DirectoryOwner& owner, const std::string& keeper,
                 const fs::path& directory) {
  std::string text = nlohmann::json{{"job", owner.job},
                                    {"command", owner.command},
                                    {"settings", owner.contents.settings},
                                    {"origin", owner.contents.origin},
                                    {"launch", owner.launch},
                                    {"generation", owner.generation},
                                    {"program", owner.program},
                                    {"host", owner.host},
                                    {"has_begun", owner.has_begun},
                                    {"has_finished", owner.has_finished},
                                    {"model", owner.model},
                                    {"model_digest", owner.model_digest},
                                    {"has_overwritten_origin", owner.has_overwritten_origin},
                                    {"nonfinite_step", owner.nonfinite_step},
                                    {"process", process_identity()},
                                    {"keeper", keeper},
                                    {"path_digest", digest_of_path(directory)}}
                         .dump(1, ' ', false, nlohmann::json::error_handler_t::replace) +
                     "\n";
  // Overwrites the bytes of the last record, so that a full disk or a crash leaves the one or the other.
  constexpr std::size_t usual_bytes = 1024;
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return errno;
  const std::size_t size = std::max({usual_bytes, text.size(), static_cast<std::size_t>(status.st_size)});
  text.append(std::min(size, max_record_bytes) > text.size() ? std::min(size, max_record_bytes) - text.size() : 0, ' ');
  const ssize_t written = pwrite(file.number(), text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size())) return written < 0 ? errno : ENOSPC;
  return fsync(file.number()) == 0 ? 0 : errno;
}

/// The name of the model that the last run saved in the directory, as history.json tells; empty if it is not there.
std::string name_of_saved_model(const fs::path& directory) {
  std::ifstream stream(directory / "history.json", std::ios::binary);
  const nlohmann::json history = nlohmann::json::parse(stream, nullptr, false);
  if (!history.is_object()) return {};
  const auto file = history.find("file");
  std::error_code unknown;
  return file != history.end() && file->is_string() &&
                 fs::exists(directory / file->get_ref<const std::string&>(), unknown)
             ? file->get<std::string>()
             : std::string();
}

std::string digest_of_file(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::vector<char> block(std::size_t{1} << 20U);
  Digest digest;
  while (stream.read(block.data(), std::ssize(block)) || stream.gcount() > 0)
    digest.add(block.data(), static_cast<std::size_t>(stream.gcount()));
  if (!stream.eof()) throw_io_error("cannot read " + file.string(), errno);
  return digest.to_string();
}

bool are_known_to_differ(const std::string& a, const std::string& b) { return !a.empty() && !b.empty() && a != b; }

std::string describe(const std::optional<Record>& record) {
  if (!record || record->owner.job.empty()) return "another job";
  const DirectoryOwner& owner = record->owner;
  return fmt::format("job {} ({} on {}{})", printable(owner.job), printable(owner.program), printable(owner.host),
                     owner.generation > 0 ? fmt::format(", generation {}", owner.generation) : "");
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

void DirectoryLock::refuse(bool may_be_mended_by_restart, const std::string& problem) const {
  if (owner_.generation > 0 && !may_be_mended_by_restart) throw UsageError(problem);
  throw PeerError(problem);
}

void DirectoryLock::refuse_other_directory() const {
  refuse(false, fmt::format("{} is not the directory that this job took: it was moved, replaced or removed meanwhile, "
                            "so this process writes nothing more there; put it back and start again",
                            path_.string()));
}

void DirectoryLock::continue_from(const DirectoryOwner& last) {
  other_job_has_finished_ = last.has_finished && last.job != owner_.job;
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
}

/// Replaces the lock file that the keeper kept, so that a process of the generation before, if one still runs, notices
/// before it publishes anything. The directory is locked all the while. Returns false if the call must be repeated.
bool DirectoryLock::try_to_succeed(const FileDescriptor& kept, const LockKeeper& keeper) {
  const fs::path path = lock_file_in(path_);
  const fs::path next = path.string() + ".next";
  if (const std::optional<Record> record = read_record(kept)) continue_from(record->owner);
  unlink(next.c_str());  // of a generation that was killed here
  FileDescriptor file(next, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (!file.valid()) throw_io_error("cannot write " + next.string(), errno);
  (void)try_lock(file);
  const int problem = write_record(file, owner_, keeper_, path_);
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

/// Returns false if the call must be repeated.
bool DirectoryLock::try_to_own(const LockKeeper& keeper, double wait_until) {
  const fs::path path = lock_file_in(path_);
  for (const FileDescriptor& kept : keeper.kept) {
    if (is_path_of(path, kept)) return try_to_succeed(kept, keeper);
  }
  for (const FileDescriptor& kept : keeper.kept) {
    struct stat status {};
    const bool was_removed = fstat(kept.number(), &status) != 0 || status.st_nlink == 0;
    const std::optional<Record> record = read_record(kept);
    if (!record || record->path_digest != digest_of_path(path_)) continue;
    if (!was_removed) refuse_other_directory();
    continue_from(record->owner);  // the last one is the newest
  }
  FileDescriptor file(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
  const bool is_of_other_user = !file.valid() && errno == EACCES;
  if (is_of_other_user) file = open_for_lock(path);
  if (!file.valid() && errno == ELOOP) throw IoError(path.string() + " is a link, not a record of a job; remove it");
  if (!file.valid()) throw_io_error("cannot write " + path.string(), is_of_other_user ? EACCES : errno);
  require_record_file(file, path);
  const int error = try_lock(file);
  const std::optional<Record> record = read_record(file);
  if (error == EWOULDBLOCK) {
    if (record && record->process == process_identity()) {
      adopt(record->owner);
      file_ = std::move(file);
      return true;
    }
    if (record && has_died(record->process) && (record->keeper.empty() || has_died(record->keeper))) {
      // The owner's successor, which has the lock but has not written its record yet, does so within this time.
      constexpr double until_recorded_s = 2;
      continue_from(record->owner);  // the next lock file has no record
      if (!dead_since_) dead_since_ = monotonic_seconds();
      if (monotonic_seconds() > *dead_since_ + until_recorded_s && is_path_of(path, file)) unlink(path.c_str());
      return false;
    }
    if (record && is_earlier_generation(record->owner)) {
      // A new file is a new lock. The old owner notices before it publishes anything.
      continue_from(record->owner);
      if (monotonic_seconds() > wait_until && is_path_of(path, file)) unlink(path.c_str());
      return false;
    }
    refuse(record && record->owner.job == owner_.job,
           fmt::format("{} belongs to {}, which is still running; wait for it to end, or choose another directory",
                       path_.string(), describe(record)));
  }
  if (error != 0) {
    log_warning(fmt::format(
        "{} is on a file system without locks ({}), so a second job that writes there would not be noticed; "
        "make sure that no other job uses this directory",
        path_.string(), std::generic_category().message(error)));
  } else if (!is_path_of(path, file)) {
    return false;
  }
  if (record) continue_from(record->owner);
  if (is_of_other_user) {
    if (unlink(path.c_str()) != 0) throw_io_error("cannot replace " + path.string(), errno);
    file = FileDescriptor(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (!file.valid() || try_lock(file) == EWOULDBLOCK) return false;
  }
  if (const int problem = write_record(file, owner_, keeper_, path_); problem != 0) {
    if (!record) unlink(path.c_str());
    throw_io_error("cannot write " + path.string(), problem);
  }
  if (keeper.keep) keeper.keep(file);
  file_ = std::move(file);
  return true;
}

void DirectoryLock::require_held() const {
  const fs::path path = lock_file_in(path_);
  if (is_path_of(path, file_)) return;
  const FileDescriptor other = open_for_lock(path);
  if (!other.valid() && errno != ENOENT && errno != ENOTDIR)
    throw_io_error(fmt::format("cannot write to {}: cannot read {}", path_.string(), path.string()), errno);
  if (other.valid()) {
    const std::optional<Record> record = read_record(other);
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
  owner_.model = name_of_saved_model(path_);
  if (owner_.outlives_launchers && !owner_.model.empty()) owner_.model_digest = digest_of_file(path_ / owner_.model);
  record();
}

void DirectoryLock::record_nonfinite(std::uint64_t step) {
  owner_.nonfinite_step = step;
  record();
}

void DirectoryLock::record() {
  if (const int problem = write_record(file_, owner_, keeper_, path_); problem != 0)
    throw_io_error("cannot write " + lock_file_in(path_).string(), problem);
}

void DirectoryLock::release_finished(bool keeps_record) noexcept {
  const fs::path path = lock_file_in(path_);
  if (!is_path_of(path, file_)) return;
  if (!keeps_record || !owner_.outlives_launchers) unlink(path.c_str());
}

void require_job_id(const std::string& job) {
  constexpr std::size_t max_characters = 256;  // the record of a directory has a bounded length
  const auto is_plain = [](unsigned char c) { return c >= ' ' && c < 0x7f; };
  if (job.size() <= max_characters && std::ranges::all_of(job, is_plain)) return;
  throw UsageError(fmt::format(
      "the job id (--job-id, LOCKSTEP_JOB_ID) is '{}'{}, but must be at most {} characters of ASCII",
      printable(job.substr(0, max_characters)), job.size() > max_characters ? " and more" : "", max_characters));
}

bool has_finished(const fs::path& directory, const DirectoryOwner& job) {
  const FileDescriptor file(lock_file_in(directory), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  const std::optional<Record> record = file.valid() ? read_record(file) : std::nullopt;
  if (!record || !record->owner.has_finished || record->owner.job != job.job) return false;
  std::error_code unknown;
  if (const std::string& model = record->owner.model; !model.empty() && !fs::exists(directory / model, unknown))
    return false;
  const JobContents& contents = record->owner.contents;
  const char* difference = nullptr;
  if (are_known_to_differ(record->owner.command, job.command)) {
    difference = "another command line or other variables";
  } else if (are_known_to_differ(contents.settings, job.contents.settings)) {
    difference = "another model, other data or other settings";
  } else if (are_known_to_differ(contents.origin, job.contents.origin) && !record->owner.has_overwritten_origin) {
    difference = "other initial weights";
  }
  if (difference == nullptr && !record->owner.model_digest.empty() &&
      digest_of_file(directory / record->owner.model) != record->owner.model_digest) {
    throw UsageError(
        fmt::format("job {} has finished, but {} is not the model that it wrote; restore that one, or remove the file "
                    "to train again",
                    printable(job.job), (directory / record->owner.model).string()));
  }
  if (difference == nullptr) return true;
  throw UsageError(
      fmt::format("job {} has finished in {}, but it had {}; name this job otherwise (--job-id, "
                  "LOCKSTEP_JOB_ID)",
                  printable(job.job), directory.string(), difference));
}

std::string digest_of_command(std::span<const std::string> command) {
  Digest digest;
  for (const std::string& argument : command) digest.add(argument.c_str(), argument.size() + 1);
  return digest.to_string();
}

void require_not_owned_by_another(const fs::path& file) {
  const fs::path directory = directory_of(file);
  const FileDescriptor lock = open_for_lock(lock_file_in(directory));
  if (!lock.valid() && errno == ENOENT) return;
  if (!lock.valid()) {
    throw_io_error(fmt::format("cannot write {}: cannot read {}", file.string(), lock_file_in(directory).string()),
                   errno);
  }
  const std::optional<Record> record = read_record(lock);
  if (record && record->process == process_identity()) return;
  if (try_lock(lock) != EWOULDBLOCK) return;
  throw PeerError(fmt::format("{} belongs to {} now, so this process writes nothing more there", directory.string(),
                              describe(record)));
}

}  // namespace lockstep
