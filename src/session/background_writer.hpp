// Writes checkpoints and backups on a background thread, for all models of a process.
#pragma once

#include "collective/communicator.hpp"

#include <lockstep/training/options.hpp>

#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

/// Runs one job at a time on its own thread. HDF5 is not thread-safe, so call `wait` before reading or writing models
/// elsewhere. Call every function from the training thread. While a gather is in flight, the functions that wait
/// for it are collective.
class BackgroundWriter {
 public:
  /// `report_busy` reports to the launcher that the training thread waits for a file, not for a peer.
  BackgroundWriter(CheckpointFailure on_failure, std::function<void()> report_busy)
      : on_failure_(on_failure), report_busy_(std::move(report_busy)) {}
  ~BackgroundWriter();  ///< waits for the job and discards its error
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Where a job writes a model; none: it writes a backup.
  using ModelDirectory = std::optional<std::filesystem::path>;

  /// Runs `job` after the previous job, as soon as `gathering` has gathered the data that it writes. Ranks that write
  /// no file pass an empty job. If the job throws IoError, --on-checkpoint-failure decides: either it becomes a
  /// warning, or a later call throws it.
  void write(Communicator& gathering, ModelDirectory model_directory, std::function<void()> job);

  /// Whether a job is waiting for its gather.
  [[nodiscard]] bool is_gathering() const noexcept { return pending_gather_ != nullptr; }

  /// Whether a job is running or waiting for its gather.
  [[nodiscard]] bool busy() const { return pending_gather_ != nullptr || is_job_running(); }

  /// Whether the running or waiting job writes a model.
  [[nodiscard]] bool writes_model() const { return busy() && model_directory_.has_value(); }

  /// Starts the pending job if its gather is complete. Call after each step.
  void poll();

  /// Throws the error of the last job if it has ended with one.
  void rethrow_error();

  void finish_gather();

  /// Finishes the gather and waits for the job; throws its error.
  void wait();

  /// Like `wait`, but leaves the error to a later call.
  void join() noexcept;

  /// Throws IoError if the last model of some directory could not be written, although --on-checkpoint-failure let
  /// training continue. No job may be running.
  void require_last_models_written() const;

  /// Drops a job whose gather is incomplete. For stack unwinding, when the other ranks may not finish the gather.
  void cancel_gather() noexcept;

 private:
  [[nodiscard]] bool is_job_running() const;
  void wait_for_job();
  void start(const ModelDirectory& model_directory, std::function<void()> job);

  CheckpointFailure on_failure_;
  std::function<void()> report_busy_;
  Communicator* pending_gather_ = nullptr;
  std::function<void()> pending_job_;  ///< empty where another rank writes
  ModelDirectory model_directory_;     ///< of the pending job, else of the last one
  // Accessed by the running job, or while there is none:
  bool warned_of_failure_ = false;
  std::map<std::filesystem::path, std::string> model_failures_;  ///< why a directory's last model was not written
  std::future<void> job_;                                        // last: the job uses the members above
};

}  // namespace lockstep
