// The trainer's end of the socket pair to its launcher; trainer_process.hpp has the other end.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "cluster/world/progress_reporter.hpp"
#include "core/file_descriptor.hpp"
#include "core/stop_request.hpp"
#include "ownership/lock_keeper.hpp"

namespace lockstep {

/// Inactive in a process that `lockstep launch` did not start.
class LauncherConnection {
 public:
  /// Starts a thread that receives requests and ends this process with 75 when the launcher is gone: without a launcher
  /// nothing would restart this rank, and the other ranks would wait for it forever.
  LauncherConnection();

  /// Whether a launcher started this process and would restart it.
  [[nodiscard]] bool is_active() const noexcept { return descriptor_ >= 0; }

  /// Reports progress to the launcher; use it from the training thread.
  [[nodiscard]] ProgressReporter& progress() noexcept { return progress_; }

  /// Tells the launcher that the job's work is complete, so that it starts nothing again if a signal ends this process
  /// before it exits with 0. Does nothing without a launcher.
  void report_finished() const noexcept;

  /// Tells the launcher why this process ends, so that the other workers can print it. Does nothing without a launcher.
  static void report_error(const std::string& message) noexcept;

  /// Tells the launcher that the other tasks did not connect in time, so that it starts no trainer again. Does nothing
  /// without a launcher.
  static void report_tasks_never_came() noexcept;

  /// The launcher as the keeper of locks: it keeps their files open, for later generations to inherit, until it ends or
  /// they are removed. Without a launcher, nobody keeps them. It must not outlive this object.
  [[nodiscard]] LockKeeper lock_keeper() const;

  /// The most urgent request received so far.
  [[nodiscard]] StopRequest request() const noexcept { return request_->load(std::memory_order_relaxed); }

 private:
  void keep_file(const FileDescriptor& file) const;
  [[nodiscard]] std::string launcher_process() const;

  int descriptor_;
  ProgressReporter progress_;
  std::shared_ptr<std::atomic<StopRequest>> request_;  ///< shared with the receiving thread
};

}  // namespace lockstep
