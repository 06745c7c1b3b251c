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
constexpr double tolerance = 3;  // times the longest recent healthy duration

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
  step_seconds_.clear();
  all_waiting_since_.reset();
}

void StallDetector::update(const Progress& report, double now) {
  Rank& rank = ranks_.at(report.rank);
  rank.last = report;
  if (report.activity != Activity::waiting) {
    rank.waiting_since.reset();
  } else if (!rank.waiting_since) {
    rank.waiting_since = now;
  }
  rank.has_started |= report.activity == Activity::busy || report.activity == Activity::training;
  has_trained_ |= report.activity == Activity::training || report.step > 0;  // a coordinator mostly waits
  if (!first_report_) first_report_ = now;
  if (report.activity == Activity::busy) last_advance_.reset();
  if (report.step <= max_step_) return;
  max_step_ = report.step;
  if (last_advance_) step_seconds_.add(now - *last_advance_);
  if (report.activity != Activity::busy) last_advance_ = now;
}

void StallDetector::discount(double seconds) noexcept {
  if (last_advance_) *last_advance_ += seconds;
  if (all_waiting_since_) *all_waiting_since_ += seconds;
  if (first_report_) *first_report_ += seconds;
  for (Rank& rank : ranks_) {
    if (rank.waiting_since) *rank.waiting_since += seconds;
  }
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

std::optional<Stall> StallDetector::find_silent_start(double limit, double now) const {
  if (has_trained_) return {};
  std::optional<std::size_t> silent;
  std::optional<std::size_t> last_waiting;
  double waited = 0;
  bool are_all_waiting = true;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (rank.ended) continue;
    if (rank.waiting_since) {
      waited = std::max(waited, now - *rank.waiting_since);
      if (!last_waiting || *rank.waiting_since > *ranks_[*last_waiting].waiting_since) last_waiting = i;
      continue;
    }
    are_all_waiting = false;
    const double silence = rank.last && rank.has_started ? rank.last->silent_seconds : 0;
    if (silence > limit && (!silent || silence > ranks_[*silent].last->silent_seconds)) silent = i;
  }
  if (waited > limit && silent) {
    return Stall{*silent, fmt::format("the others have waited for it for {:.0f} s and it has not reported for {:.0f} s",
                                      waited, ranks_[*silent].last->silent_seconds)};
  }
  if (!are_all_waiting || !last_waiting || now - *ranks_[*last_waiting].waiting_since <= limit) return {};
  return Stall{
      *last_waiting,
      fmt::format("all ranks have been waiting for each other for {:.0f} s; this one was the last to start waiting",
                  now - *ranks_[*last_waiting].waiting_since)};
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
    const std::optional<Progress>& last = ranks_[rank].last;
    if (ranks_[rank].ended || !last || last->silent_seconds <= max_allowed_silence(*last)) continue;
    if (!found || blame_order(*last) < blame_order(*ranks_[*found].last)) found = rank;
  }
  return found;
}

double StallDetector::seconds_all_wait(double now) {
  bool all_waiting = false;
  for (const Rank& rank : ranks_) {
    if (rank.ended) continue;
    all_waiting = rank.last && rank.last->activity == Activity::waiting;
    if (!all_waiting) break;
  }
  if (!all_waiting) {
    all_waiting_since_.reset();
    return 0;
  }
  if (!all_waiting_since_) all_waiting_since_ = now;
  return now - *all_waiting_since_;
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
  // They wait for each other, or for a broken network.
  const double step_seconds = step_seconds_.value();
  const double limit =
      step_seconds > 0 ? std::max(timeouts_.stall_timeout, tolerance * step_seconds) : timeouts_.busy_timeout;
  const double all_wait = seconds_all_wait(now);
  if (all_wait <= limit) return {};
  std::optional<std::size_t> behind;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].ended && (!behind || ranks_[rank].last->step < ranks_[*behind].last->step)) behind = rank;
  }
  return Stall{*behind, fmt::format("all ranks have been waiting for each other for {:.1f} s, last step {}", all_wait,
                                    ranks_[*behind].last->step)};
}

}  // namespace lockstep
