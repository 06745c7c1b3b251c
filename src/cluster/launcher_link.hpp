// A trainer's side of the socket pair that it shares with its launcher (child.hpp has the other).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/request.hpp"

namespace lockstep {

/// Does nothing in a process that no launcher has started.
class LauncherLink {
 public:
  /// From now on this process ends, with 75, when its launcher is gone: the other ranks would wait for it for ever.
  LauncherLink();

  /// How many steps of the training are done. Cheap: most calls tell nothing.
  void tell_step(std::uint64_t step) noexcept;

  /// The most urgent that was asked so far.
  [[nodiscard]] Request request() const noexcept { return request_->load(std::memory_order_relaxed); }

 private:
  int descriptor_;
  double next_ = 0;
  std::shared_ptr<std::atomic<Request>> request_;  ///< the thread that listens has it as well
};

}  // namespace lockstep
