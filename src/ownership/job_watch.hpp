// What a process beside a job can tell about it from its record: an evaluator ends when the job has ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

enum class JobState : std::uint8_t {
  unknown,          ///< the directory holds no record: no job has begun, or one that keeps none there
  running,          ///< the record's job has not finished; its processes may have died
  finished_before,  ///< a job had finished before the first look, and a later one may come
  ended             ///< a job has finished since the first look
};

class JobWatch {
 public:
  explicit JobWatch(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Throws IoError if the record cannot be read, DataError if it is damaged. Neither says that the job has ended.
  JobState look();

  /// The name of the model that the job had written when it finished, as the last look found; empty if it wrote none.
  [[nodiscard]] const std::string& model() const noexcept { return model_; }

  /// The job that began the training whose models the directory gets, as the last look found. A job that resumes
  /// another one's backups goes on with its training. Empty if there is no record, or the job has not begun.
  [[nodiscard]] const std::string& training() const noexcept { return training_; }

  /// Whether the record's job may have a process. A lock that outlives the job's processes on this host is not the
  /// job's. On a file system without locks, only a process that is known to have died has ended. Rarely asked, because
  /// asking takes the lock for a moment. Throws as look().
  [[nodiscard]] bool may_be_running() const;

 private:
  std::filesystem::path directory_;
  std::optional<std::string> finished_before_;  ///< the process of the job that the first look found finished; or ""
  std::string model_;
  std::string training_;
};

}  // namespace lockstep
