// See step_watch.hpp.
#include "cluster/step_watch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <tuple>

namespace lockstep {

namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr double tolerance = 3;  // times as long as it took before

std::string with_tenths(double seconds) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  return text.data();
}

std::string where(const Progress& report) { return ", it stands at step " + std::to_string(report.step); }

}  // namespace

StepWatch::StepWatch(const Supervision& limits) : limits_(limits) {
  if (limits_.stuck == 0) limits_.stuck = never;
  limits_.busy = limits_.busy == 0 ? never : std::max(limits_.busy, limits_.stuck);
}

void StepWatch::begin(std::size_t ranks) {
  ranks_.assign(ranks, {});
  furthest_step_ = 0;
  moved_.reset();
  longest_step_ = 0;
  all_wait_since_.reset();
}

void StepWatch::hear(const Progress& report, double now) {
  ranks_.at(report.rank).last = report;
  if (report.activity == Activity::busy) moved_.reset();
  if (report.step <= furthest_step_) return;
  furthest_step_ = report.step;
  if (moved_) longest_step_ = std::max(longest_step_, now - *moved_);
  if (report.activity != Activity::busy) moved_ = now;
}

void StepWatch::forgive(double seconds) noexcept {
  if (moved_) *moved_ += seconds;
  if (all_wait_since_) *all_wait_since_ += seconds;
}

double StepWatch::allowed(const Progress& report) const {
  switch (report.activity) {
    case Activity::waiting: return limits_.stuck;
    case Activity::training:
      if (report.longest_silence > 0) return std::max(limits_.stuck, tolerance * report.longest_silence);
      break;
    case Activity::busy: break;
  }
  return limits_.busy;
}

/// Of several the one that does not wait, then the one that is behind, then the one that fell silent first.
std::optional<std::size_t> StepWatch::find_silent() const {
  const auto innocence = [](const Progress& it) {
    return std::tuple(it.activity == Activity::waiting, it.step, -it.silence);
  };
  std::optional<std::size_t> found;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto& [ended, last] = ranks_[rank];
    if (ended || !last || last->silence <= allowed(*last)) continue;
    if (!found || innocence(*last) < innocence(*ranks_[*found].last)) found = rank;
  }
  return found;
}

/// For so long that they wait for each other, or for a network that is gone.
bool StepWatch::all_wait(double now) {
  bool all = false;
  for (const Rank& rank : ranks_) {
    if (rank.ended) continue;
    all = rank.last && rank.last->activity == Activity::waiting;
    if (!all) break;
  }
  if (!all) {
    all_wait_since_.reset();
    return false;
  }
  if (!all_wait_since_) all_wait_since_ = now;
  const double limit = longest_step_ > 0 ? std::max(limits_.stuck, tolerance * longest_step_) : limits_.busy;
  return now - *all_wait_since_ > limit;
}

std::optional<Stall> StepWatch::find(double now) {
  if (const std::optional<std::size_t> rank = find_silent()) {
    const Progress& last = *ranks_[*rank].last;
    const std::string silence = with_tenths(last.silence);
    if (last.activity != Activity::busy) return Stall{*rank, "no step for " + silence + where(last)};
    if (last.step == 0) return Stall{*rank, "it did not begin to train within " + silence + " (--busy-timeout)"};
    return Stall{*rank, "busy, and not heard for " + silence + " (--busy-timeout)" + where(last)};
  }
  if (!all_wait(now)) return {};
  std::optional<std::size_t> behind;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].ended && (!behind || ranks_[rank].last->step < ranks_[*behind].last->step)) behind = rank;
  }
  return Stall{*behind, "all ranks have waited for each other for " + with_tenths(now - *all_wait_since_) +
                            where(*ranks_[*behind].last)};
}

}  // namespace lockstep
