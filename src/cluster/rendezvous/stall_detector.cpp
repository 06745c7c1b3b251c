// See stall_detector.hpp.
#include "cluster/rendezvous/stall_detector.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace lockstep {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr double tolerance = 3;  // times the longest healthy duration

}  // namespace

StallDetector::StallDetector(const SupervisionTimeouts& timeouts) : timeouts_(timeouts) {
  if (timeouts_.stall_timeout == 0) timeouts_.stall_timeout = never;
  timeouts_.busy_timeout =
      timeouts_.busy_timeout == 0 ? never : std::max(timeouts_.busy_timeout, timeouts_.stall_timeout);
}

void StallDetector::begin(std::size_t ranks) {
  ranks_.assign(ranks, {});
  first_report_.reset();
  has_trained_ = false;
  max_step_ = 0;
  last_advance_.reset();
  max_step_seconds_ = 0;
  all_waiting_since_.reset();
}

void StallDetector::update(const Progress& report, double now) {
  Rank& rank = ranks_.at(report.rank);
  rank.last = report;
  rank.has_started |= report.activity == Activity::busy || report.activity == Activity::training;
  has_trained_ |= report.activity == Activity::training;
  if (!first_report_) first_report_ = now;
  if (report.activity == Activity::busy) last_advance_.reset();
  if (report.step <= max_step_) return;
  max_step_ = report.step;
  if (last_advance_) max_step_seconds_ = std::max(max_step_seconds_, now - *last_advance_);
  if (report.activity != Activity::busy) last_advance_ = now;
}

void StallDetector::discount(double seconds) noexcept {
  if (last_advance_) *last_advance_ += seconds;
  if (all_waiting_since_) *all_waiting_since_ += seconds;
  if (first_report_) *first_report_ += seconds;
}

std::vector<std::size_t> StallDetector::starting_ranks() const {
  std::vector<std::size_t> starting;
  for (std::size_t rank = 0; first_report_ && rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].ended && !ranks_[rank].has_started) starting.push_back(rank);
  }
  return starting;
}

bool StallDetector::is_start_awaited() const {
  return !has_trained_ && std::ranges::any_of(ranks_, [](const Rank& rank) {
    return !rank.ended && rank.last && rank.last->activity == Activity::waiting;
  });
}

double StallDetector::max_allowed_silence(const Progress& report) const {
  switch (report.activity) {
    case Activity::waiting: return timeouts_.stall_timeout;
    case Activity::training:
      if (report.max_silent_seconds > 0)
        return std::max(timeouts_.stall_timeout, tolerance * report.max_silent_seconds);
      break;
    case Activity::starting: return never;  // --start-timeout limits the start of all ranks
    case Activity::busy: break;
  }
  return timeouts_.busy_timeout;
}

/// Of several candidates, prefers a rank that does not wait, then the one with the fewest steps, then the longest
/// silence.
std::optional<std::size_t> StallDetector::find_stalled_rank() const {
  const auto blame_order = [](const Progress& it) {
    return std::tuple(it.activity == Activity::waiting, it.step, -it.silent_seconds);
  };
  std::optional<std::size_t> found;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto& [ended, has_started, last] = ranks_[rank];
    if (ended || !last || last->silent_seconds <= max_allowed_silence(*last)) continue;
    if (!found || blame_order(*last) < blame_order(*ranks_[*found].last)) found = rank;
  }
  return found;
}

/// True if all ranks have waited too long: for each other, or for a broken network.
bool StallDetector::are_all_waiting(double now) {
  bool all_waiting = false;
  for (const Rank& rank : ranks_) {
    if (rank.ended) continue;
    all_waiting = rank.last && rank.last->activity == Activity::waiting;
    if (!all_waiting) break;
  }
  if (!all_waiting) {
    all_waiting_since_.reset();
    return false;
  }
  if (!all_waiting_since_) all_waiting_since_ = now;
  const double limit =
      max_step_seconds_ > 0 ? std::max(timeouts_.stall_timeout, tolerance * max_step_seconds_) : timeouts_.busy_timeout;
  return now - *all_waiting_since_ > limit;
}

std::optional<Stall> StallDetector::find_stall(double now) {
  if (const std::optional<std::size_t> rank = find_stalled_rank()) {
    const Progress& last = *ranks_[*rank].last;
    if (last.activity != Activity::busy) {
      return Stall{*rank, fmt::format("no step for {:.1f} s, last step {}", last.silent_seconds, last.step)};
    }
    if (last.step == 0) {
      return Stall{*rank, fmt::format("training did not begin within {:.1f} s (--busy-timeout)", last.silent_seconds)};
    }
    return Stall{*rank, fmt::format("busy, no report for {:.1f} s (--busy-timeout), last step {}", last.silent_seconds,
                                    last.step)};
  }
  if (!are_all_waiting(now)) return {};
  std::optional<std::size_t> behind;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].ended && (!behind || ranks_[rank].last->step < ranks_[*behind].last->step)) behind = rank;
  }
  return Stall{*behind, fmt::format("all ranks have waited for each other for {:.1f} s, last step {}",
                                    now - *all_waiting_since_, ranks_[*behind].last->step)};
}

}  // namespace lockstep
