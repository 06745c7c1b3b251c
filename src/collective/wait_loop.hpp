// How a rank waits for another: it spins, then yields, then sleeps between polls. It reports what it waits for and
// finally times out. Callers poll once before they construct a WaitLoop, so that a finished wait costs nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "collective/communicator_options.hpp"

namespace lockstep {

struct WaitPolicy {
  bool spin = true;             ///< false if ranks outnumber cores: the awaited rank may need this core
  double report_interval = 10;  ///< seconds between messages on standard error
  double timeout = 600;         ///< as in CommunicatorOptions
  std::function<void(bool)> while_waiting = {};
};

/// The policy of a rank that shares its host with `ranks_on_host` ranks, itself included.
[[nodiscard]] WaitPolicy make_wait_policy(const CommunicatorOptions& options, std::size_t ranks_on_host);

/// One wait, which begins with the construction.
class WaitLoop {
 public:
  explicit WaitLoop(const WaitPolicy& policy) noexcept;
  ~WaitLoop();
  WaitLoop(const WaitLoop&) = delete;
  WaitLoop& operator=(const WaitLoop&) = delete;

  /// Spins, yields or sleeps for a moment. Returns true if report() is due.
  [[nodiscard]] bool pause() noexcept;

  /// Logs that this rank waits for `what` ("rank 1 to ..."). Throws PeerError after the timeout.
  void report(const std::string& what);

  [[nodiscard]] double seconds() const noexcept;

 private:
  const WaitPolicy& policy_;
  double start_;  ///< moves on while this process does not run
  double last_pause_;
  double next_report_;
  int polls_ = 0;
  bool has_called_back_ = false;
};

}  // namespace lockstep
