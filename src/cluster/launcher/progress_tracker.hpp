// The last reports of this launcher's trainers, and how long each trainer has been silent. The coordinator decides
// which silence is too long, but each launcher measures it next to its trainers, so that network delays do not add to
// it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cluster/rendezvous/message.hpp"

namespace lockstep {

class ProgressTracker {
 public:
  /// `report_interval`: seconds between two messages to the coordinator about a rank.
  explicit ProgressTracker(double report_interval) : report_interval_(report_interval) {}

  /// Starts tracking a rank whose trainer runs. A trainer that never reports is not watched: it is not a Lockstep
  /// program.
  void begin(std::uint64_t rank) { ranks_[rank] = {}; }
  void update(std::uint64_t rank, const Progress& report, double now);
  void end(std::uint64_t rank) { ranks_.erase(rank); }

  [[nodiscard]] bool has_reported(std::uint64_t rank) const;

  /// The reports that are due to be sent to the coordinator. Call it many times a second: a longer time between two
  /// calls counts as one in which this process was suspended.
  [[nodiscard]] std::vector<Progress> take_due_reports(double now);

  /// The last report of every rank, with silent_seconds up to now.
  [[nodiscard]] std::vector<Progress> reports(double now) const;
  /// The first rank's last report that counted a completed step; kept after its trainer has ended.
  [[nodiscard]] const std::optional<Progress>& latest_progress() const noexcept { return latest_progress_; }

 private:
  struct TrackedRank {
    std::optional<Progress> last;
    double last_report = 0;
    double next_report = 0;  ///< when the next report to the coordinator is due
  };

  [[nodiscard]] static Progress up_to_date(Progress last, double last_report, double now);

  double report_interval_;
  std::optional<double> last_call_;  ///< of take_due_reports
  std::map<std::uint64_t, TrackedRank> ranks_;
  std::optional<Progress> latest_progress_;
};

}  // namespace lockstep
