// See patience.hpp.
#include "collective/patience.hpp"

#include <immintrin.h>
#include <sched.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>

#include "core/clock.hpp"
#include "core/cores.hpp"
#include "core/log.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr int spins = 50;               // pauses of 40 to 140 cycles each: one or two microseconds
constexpr double sleep_after_s = 0.01;  // whoever is this late will not be noticed a little later
constexpr auto nap = std::chrono::microseconds(50);

std::string in_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

}  // namespace

WaitPolicy WaitPolicy::of(const Environment& environment, std::size_t ranks_on_host) {
  WaitPolicy policy;
  policy.spin = ranks_on_host <= available_cores();
  const auto found = environment.find("LOCKSTEP_COLLECTIVE_TIMEOUT");
  if (found == environment.end()) return policy;
  const std::string& text = found->second;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, policy.timeout);
  if (error != std::errc() || next != end || !std::isfinite(policy.timeout) || policy.timeout < 0) {
    throw UsageError("LOCKSTEP_COLLECTIVE_TIMEOUT is '" + text +
                     "': give the seconds that a rank waits for another, or 0 for no limit");
  }
  return policy;
}

Patience::Patience(const WaitPolicy& policy) noexcept
    : policy_(policy), start_(monotonic_seconds()), next_report_(start_ + policy.report_every) {}

Patience::~Patience() {
  if (was_told_ && policy_.while_waiting) policy_.while_waiting(false);
}

bool Patience::pass() noexcept {
  if (policy_.spin && looks_ < spins) {
    ++looks_;
    _mm_pause();
    return false;
  }
  const double now = monotonic_seconds();
  if (now - start_ < sleep_after_s) {
    (void)sched_yield();  // cannot fail on Linux
  } else {
    std::this_thread::sleep_for(nap);
    was_told_ = true;
    if (policy_.while_waiting) policy_.while_waiting(true);
  }
  return now >= next_report_ || (policy_.timeout > 0 && now - start_ >= policy_.timeout);
}

void Patience::speak(const std::string& what) {
  const double waited = seconds();
  if (policy_.timeout > 0 && waited >= policy_.timeout) {
    throw PeerError("waited " + in_seconds(waited) + " in vain for " + what +
                    "; see what it says itself, or allow more time with LOCKSTEP_COLLECTIVE_TIMEOUT=SECONDS");
  }
  log_warning("waiting for " + what + ", for " + in_seconds(waited) + " now");
  next_report_ += policy_.report_every;
}

double Patience::seconds() const noexcept { return monotonic_seconds() - start_; }

}  // namespace lockstep
