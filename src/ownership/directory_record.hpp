// The record of a directory's owner: the file ".lockstep.lock", of at most 4096 bytes of JSON. DirectoryLock locks it.
#pragma once

#include "core/file_descriptor.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// What a job computes with, beyond the words of its command line. Empty: unknown, and equal to everything.
struct JobContents {
  std::string settings;  ///< the digest of model, data and options
  std::string origin;    ///< the digest of weights and optimizer state that were read from files
};

/// Who writes to a directory.
struct DirectoryOwner {
  std::string job;                  ///< unique per job; equal in all of its generations
  bool outlives_launchers = false;  ///< whether new launchers of the job know its name, as a Kubernetes Job's pods do
  std::string command = {};         ///< the digest of the command line
  JobContents contents = {};
  std::string launch = {};        ///< of the launcher that counts the generations
  std::uint64_t generation = 0;   ///< rises with each restart of the job's workers; 0 without a launcher
  std::string program = {};       ///< for messages: "keras_mnist"
  std::string host = {};          ///< for messages
  bool has_begun = false;         ///< the backups in the directory are this job's own
  bool has_finished = false;      ///< the job has written all that it was to write
  std::string model = {};         ///< the name of the model in the directory when the job had finished; empty: none
  std::string model_digest = {};  ///< of that file's bytes
  bool has_overwritten_origin = false;  ///< the job has written to a file of its initial weights
  std::uint64_t nonfinite_step = 0;     ///< after which the job saw NaN or infinity and restarted; 0: none
  std::string parallelism = {};         ///< what --parallelism auto chose, for which model and how many workers
  std::string training = {};  ///< the job that began the training: another one if this job resumed it; empty: unknown
};

struct DirectoryRecord {
  DirectoryOwner owner;                       ///< without outlives_launchers
  std::string process;                        ///< process_identity() of the owner
  std::string keeper;                         ///< that of the process that keeps its lock; empty: none
  std::string path_digest;                    ///< digest_of_path()
  std::uint64_t directory_inode = 0;          ///< differs in a copy of the directory by hard links; 0: unknown
  std::optional<DirectoryOwner> before = {};  ///< whose files the directory has, as long as `owner` has written none

  /// Whose files the directory has. A job that was refused, or died before it began, leaves it its owner.
  [[nodiscard]] const DirectoryOwner& owner_of_files() const noexcept { return before ? *before : owner; }
};

[[nodiscard]] std::filesystem::path record_file_in(const std::filesystem::path& directory);

/// Of the directory's absolute path, which may be longer than a record.
[[nodiscard]] std::string digest_of_path(const std::filesystem::path& directory);

/// Whether the job has written or removed files.
[[nodiscard]] bool has_files(const DirectoryOwner& owner) noexcept;

/// The record in a directory; nothing if there is none. Throws as read_record.
[[nodiscard]] std::optional<DirectoryRecord> find_record(const std::filesystem::path& directory);

/// Nothing if the file is empty. Fields that are missing or of another type are empty. `path`: of the file, for
/// messages. Throws IoError if it cannot be read, and DataError if it holds something else: then nobody may take it for
/// that of a new job.
[[nodiscard]] std::optional<DirectoryRecord> read_record(const FileDescriptor& file, const std::filesystem::path& path);

/// Returns 0 or errno. A full disk or a crash leaves the last record or the new one.
[[nodiscard]] int write_record(const FileDescriptor& file, const DirectoryRecord& record);

/// "job j-17 (keras_mnist on host-3, generation 2)", or "another job".
[[nodiscard]] std::string describe(const std::optional<DirectoryRecord>& record);

/// Whether two digests are known and not equal.
[[nodiscard]] bool are_known_to_differ(const std::string& a, const std::string& b);

/// Throws UsageError unless the id of a job can be recorded.
void require_job_id(const std::string& job);

/// The digest of a command line and the variables that set its options, for DirectoryOwner::command.
[[nodiscard]] std::string digest_of_command(std::span<const std::string> command);

}  // namespace lockstep
