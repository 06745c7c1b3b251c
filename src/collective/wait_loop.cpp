// See wait_loop.hpp.
#include "collective/wait_loop.hpp"

#include "core/available_cpus.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

namespace lockstep {

namespace {

constexpr int max_spins = 50;           // pauses of 40 to 140 cycles each: one or two microseconds in all
constexpr double min_suspension_s = 2;  // pauses are a thousand times shorter, also on busy machines
constexpr double sleep_after_s = 0.01;  // after such a wait, noticing the other rank slightly later does not matter
constexpr auto sleep_interval = std::chrono::microseconds(50);

}  // namespace

WaitPolicy make_wait_policy(const CommunicatorOptions& options, std::size_t ranks_on_host) {
  return {.spin = ranks_on_host <= available_cpu_count(),
          .timeout = options.timeout,
          .while_waiting = options.while_waiting};
}

WaitLoop::WaitLoop(const WaitPolicy& policy) noexcept
    : policy_(policy),
      start_(monotonic_seconds()),
      last_pause_(start_),
      next_report_(start_ + policy.report_interval) {}

WaitLoop::~WaitLoop() {
  if (has_called_back_ && policy_.while_waiting) policy_.while_waiting(false);
}

bool WaitLoop::pause() noexcept {
  if (policy_.spin && polls_ < max_spins) {
    ++polls_;
    _mm_pause();
    return false;
  }
  const double now = monotonic_seconds();
  // A stopped process (Ctrl-Z, a suspended machine) does not wait: the awaited rank may have been stopped with it.
  if (const double gap = now - last_pause_; gap > min_suspension_s) {
    start_ += gap;
    next_report_ += gap;
  }
  last_pause_ = now;
  if (now - start_ < sleep_after_s) {
    (void)sched_yield();  // cannot fail on Linux
  } else {
    std::this_thread::sleep_for(sleep_interval);
    has_called_back_ = true;
    if (policy_.while_waiting) policy_.while_waiting(true);
  }
  return now >= next_report_ || (policy_.timeout > 0 && now - start_ >= policy_.timeout);
}

void WaitLoop::report(const std::string& what) {
  const double waited = seconds();
  if (policy_.timeout > 0 && waited >= policy_.timeout) {
    throw PeerError(
        fmt::format("timed out after {:.3g} s waiting for {}; see its log, or raise the timeout with "
                    "LOCKSTEP_COLLECTIVE_TIMEOUT=SECONDS",
                    waited, what));
  }
  log_warning(fmt::format("waiting for {}, {:.3g} s so far", what, waited));
  next_report_ += policy_.report_interval;
}

double WaitLoop::seconds() const noexcept { return monotonic_seconds() - start_; }

}  // namespace lockstep
