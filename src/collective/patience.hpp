// How a rank waits for another: it looks again at once, then lets others run, then sleeps between looks; it says whom
// it waits for, and in the end gives up. Only made where the first look failed, so that a wait that is none costs
// nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "core/environment.hpp"

namespace lockstep {

struct WaitPolicy {
  bool spin = true;          ///< false where ranks may outnumber cores: the awaited one needs this core
  double report_every = 10;  ///< seconds between lines on stderr
  double timeout = 600;      ///< seconds until PeerError; 0: never
  /// Called with true again and again in waits of more than a moment, and with false at their end. Must not throw.
  std::function<void(bool)> while_waiting = {};

  /// For so many ranks on this host. LOCKSTEP_COLLECTIVE_TIMEOUT=SECONDS gives the timeout; throws UsageError where it
  /// is no number of at least 0.
  [[nodiscard]] static WaitPolicy of(const Environment& environment, std::size_t ranks_on_host);
};

/// One wait, from its construction on.
class Patience {
 public:
  explicit Patience(const WaitPolicy& policy) noexcept;
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  /// Passes a little time. True where it is time to `speak`.
  [[nodiscard]] bool pass() noexcept;

  /// Prints that this rank waits for `what` ("rank 1 to ..."). Throws PeerError once the timeout is over.
  void speak(const std::string& what);

  [[nodiscard]] double seconds() const noexcept;

 private:
  const WaitPolicy& policy_;
  double start_;
  double next_report_;
  int looks_ = 0;
  bool was_told_ = false;
};

}  // namespace lockstep
