// See trainer_watch.hpp.
#include "cluster/trainer_watch.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep {

void TrainerWatch::hear(std::uint64_t rank, const Progress& report, double now) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  Watched& watched = found->second;
  watched.last = report;
  watched.last->rank = rank;
  watched.heard = now;
  if (report.step > 0) furthest_ = watched.last;
}

bool TrainerWatch::has_told(std::uint64_t rank) const {
  const auto found = ranks_.find(rank);
  return found != ranks_.end() && found->second.last;
}

std::vector<Progress> TrainerWatch::take_due(double now) {
  std::vector<Progress> due;
  for (auto& [rank, watched] : ranks_) {
    if (!watched.last || now < watched.next) continue;
    watched.next = now + between_;
    due.push_back(up_to_date(*watched.last, watched.heard, now));
  }
  return due;
}

std::vector<Progress> TrainerWatch::ranks(double now) const {
  std::vector<Progress> all;
  for (const auto& [rank, watched] : ranks_) {
    if (watched.last) all.push_back(up_to_date(*watched.last, watched.heard, now));
  }
  return all;
}

Progress TrainerWatch::up_to_date(Progress last, double heard, double now) {
  last.silence = std::max(0.0, now - heard);
  return last;
}

}  // namespace lockstep
