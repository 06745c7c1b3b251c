// A trainer's side of the socket pair that it shares with its launcher (child.hpp has the other).
#pragma once

#include <atomic>
#include <memory>

#include "cluster/progress_reporter.hpp"
#include "core/request.hpp"

namespace lockstep {

/// Does nothing in a process that no launcher has started.
class LauncherLink {
 public:
  /// From now on this process ends, with 75, when its launcher is gone: the other ranks would wait for it for ever.
  LauncherLink();

  /// For the thread that trains, to tell the launcher how far it is.
  [[nodiscard]] ProgressReporter& progress() noexcept { return progress_; }

  /// The most urgent that was asked so far.
  [[nodiscard]] Request request() const noexcept { return request_->load(std::memory_order_relaxed); }

 private:
  int descriptor_;
  ProgressReporter progress_;
  std::shared_ptr<std::atomic<Request>> request_;  ///< the thread that listens has it as well
};

}  // namespace lockstep
