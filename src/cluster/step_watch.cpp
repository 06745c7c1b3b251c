// See step_watch.hpp.
#include "cluster/step_watch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <tuple>

namespace lockstep {

namespace {

constexpr double tolerance = 3;  // times as long as it took before

std::string with_tenths(double seconds) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  return text.data();
}

std::string where(const Progress& report) { return ", it stands at step " + std::to_string(report.step); }

}  // namespace

StepWatch::StepWatch(const Supervision& limits) : limits_(limits) {
  limits_.start = std::max(limits_.start, limits_.stuck);
}

void StepWatch::begin(std::size_t ranks, double now) {
  ranks_.assign(ranks, {});
  began_ = now;
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
  began_ += seconds;
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
  return limits_.start;
}

/// Of several the one that does not wait, then the one that is behind, then the one that fell silent first.
std::optional<std::size_t> StepWatch::find_silent(double now) const {
  const auto innocence = [](const Rank& rank) {
    return std::tuple(rank.last && rank.last->activity == Activity::waiting, rank.last ? rank.last->step : 0,
                      rank.last ? -rank.last->silence : 0.0);
  };
  std::optional<std::size_t> found;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& it = ranks_[rank];
    if (it.ended) continue;
    const bool is_overdue = it.last ? it.last->silence > allowed(*it.last) : now - began_ > limits_.start;
    if (is_overdue && (!found || innocence(it) < innocence(ranks_[*found]))) found = rank;
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
  const double limit = longest_step_ > 0 ? std::max(limits_.stuck, tolerance * longest_step_) : limits_.start;
  return now - *all_wait_since_ > limit;
}

std::optional<Stall> StepWatch::find(double now) {
  if (limits_.stuck == 0) return {};
  if (const std::optional<std::size_t> rank = find_silent(now)) {
    const std::optional<Progress>& last = ranks_[*rank].last;
    const bool is_busy = !last || last->activity == Activity::busy;
    if (is_busy && (!last || last->step == 0)) {
      return Stall{*rank, "it did not begin to train within " + with_tenths(limits_.start)};
    }
    if (is_busy) {
      return Stall{*rank,
                   "its trainer was busy, and has not been heard for " + with_tenths(last->silence) + where(*last)};
    }
    return Stall{*rank, "no step for " + with_tenths(last->silence) + where(*last)};
  }
  if (!all_wait(now)) return {};
  const auto first = std::min_element(ranks_.begin(), ranks_.end(), [](const Rank& left, const Rank& right) {
    return std::tuple(left.ended, left.last ? left.last->step : 0) <
           std::tuple(right.ended, right.last ? right.last->step : 0);
  });
  return Stall{static_cast<std::size_t>(first - ranks_.begin()),
               "all ranks have waited for each other for " + with_tenths(now - *all_wait_since_) + where(*first->last)};
}

}  // namespace lockstep
