// See progress_tracker.hpp.
#include "cluster/launcher/progress_tracker.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

void ProgressTracker::update(std::uint64_t rank, const Progress& report, double now) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  TrackedRank& tracked = found->second;
  tracked.last = report;
  tracked.last->rank = rank;
  tracked.last_report = now;
  // One rank's: only rank 0 knows of backups, and counters of several ranks would rise and fall.
  if (report.step > 0 && rank == ranks_.begin()->first) latest_progress_ = tracked.last;
}

bool ProgressTracker::has_reported(std::uint64_t rank) const {
  const auto found = ranks_.find(rank);
  return found != ranks_.end() && found->second.last;
}

std::vector<Progress> ProgressTracker::take_due_reports(double now) {
  // A launcher that was suspended heard nobody: the gap is no silence of its trainers.
  const double gap = now - std::exchange(last_call_, now).value_or(now);
  if (gap > 2 * report_interval_) {
    for (auto& [rank, tracked] : ranks_) tracked.last_report = std::min(now, tracked.last_report + gap);
  }
  std::vector<Progress> due;
  for (auto& [rank, tracked] : ranks_) {
    if (!tracked.last || now < tracked.next_report) continue;
    tracked.next_report = now + report_interval_;
    due.push_back(up_to_date(*tracked.last, tracked.last_report, now));
  }
  return due;
}

std::vector<Progress> ProgressTracker::reports(double now) const {
  std::vector<Progress> all;
  for (const auto& [rank, tracked] : ranks_) {
    if (tracked.last) all.push_back(up_to_date(*tracked.last, tracked.last_report, now));
  }
  return all;
}

Progress ProgressTracker::up_to_date(Progress last, double last_report, double now) {
  last.silent_seconds = std::max(0.0, now - last_report);
  return last;
}

}  // namespace lockstep
