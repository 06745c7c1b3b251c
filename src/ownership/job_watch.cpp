// See job_watch.hpp.
#include "ownership/job_watch.hpp"

#include "core/file_system.hpp"
#include "core/process_identity.hpp"
#include "ownership/directory_record.hpp"

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>

namespace fs = std::filesystem;

namespace lockstep {

JobState JobWatch::look() {
  const std::optional<DirectoryRecord> record = find_record(directory_);
  const bool has_finished = record && record->owner.has_finished;
  if (!finished_before_) finished_before_ = has_finished ? record->process : "";
  model_ = has_finished ? record->owner.model : "";
  training_ = record ? record->owner.training : "";
  if (has_finished && training_.empty()) training_ = record->owner.job;  // a program that never fits
  if (!record) return JobState::unknown;
  if (!has_finished) return JobState::running;
  return record->process == *finished_before_ ? JobState::finished_before : JobState::ended;
}

bool JobWatch::may_be_running() const {
  const fs::path path = record_file_in(directory_);
  const FileDescriptor file = open_for_lock(path);
  if (!file.valid() && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return false;
  if (!file.valid()) throw_io_error("cannot read " + path.string(), errno);
  const std::optional<DirectoryRecord> record = read_record(file, path);
  const auto is_gone = [](const std::string& process) { return process.empty() || has_died(process); };
  if (record && has_died(record->process) && is_gone(record->keeper)) return false;
  return try_lock(file) != 0;
}

}  // namespace lockstep
