// Detects a rank that has stopped making progress, from the reports of all ranks. It reads no clock: callers pass the
// time.
//
// The limit depends on the rank's activity. A rank in a step may be silent for --stall-timeout or three times its
// longest recent healthy silence, whichever is longer, so that steps of ten seconds do not count as a stall. A rank
// that waits for another keeps reporting, and stalls only if its reports stop, so the detector finds the culprit and
// not the ranks that wait for it; if all ranks wait, they stall together. A rank that is busy, or in its first steps,
// may be silent for --busy-timeout. A rank that has never reported is not watched: it may not be a Lockstep program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/rendezvous/message.hpp"
#include "cluster/rendezvous/recent_maximum.hpp"
#include "cluster/rendezvous/supervision_timeouts.hpp"

namespace lockstep {

struct Stall {
  std::size_t rank = 0;
  std::string what;  ///< "no step for 4.1 s, last step 12"
};

class StallDetector {
 public:
  explicit StallDetector(const SupervisionTimeouts& timeouts);

  /// Starts watching a generation of `ranks` ranks.
  void begin(std::size_t ranks);
  void update(const Progress& report, double now);  ///< requires report.rank < ranks
  void end(std::size_t rank) { ranks_[rank].ended = true; }
  /// Ignores the last `seconds`, during which this process itself was stopped.
  void discount(double seconds) noexcept;

  /// Returns the stalled rank, if any. Call it a few times a second.
  [[nodiscard]] std::optional<Stall> find_stall(double now);

  /// Time since the first report of this generation; 0 before it.
  [[nodiscard]] double seconds_since_start(double now) const { return first_report_ ? now - *first_report_ : 0; }
  /// The ranks that have not formed the MPI world yet; none before the first report.
  [[nodiscard]] std::vector<std::size_t> starting_ranks() const;
  /// Whether a step has begun.
  [[nodiscard]] bool has_trained() const noexcept { return has_trained_; }
  /// Whether no step has begun while a rank waits for another.
  [[nodiscard]] bool is_start_awaited() const;
  /// Before the first step: the rank for which another has waited longer than `limit` seconds, and which has not
  /// reported meanwhile; where all ranks wait, the one that began last.
  [[nodiscard]] std::optional<Stall> find_silent_start(double limit, double now) const;

  /// How long all ranks have been waiting for each other; 0 if one is not.
  [[nodiscard]] double seconds_all_wait(double now);

  /// The last report of a rank; nullopt before its first.
  [[nodiscard]] const std::optional<Progress>& last_report(std::size_t rank) const { return ranks_.at(rank).last; }

 private:
  struct Rank {
    bool ended = false;
    bool has_started = false;  ///< the MPI world stands
    std::optional<double> waiting_since;
    std::optional<Progress> last;
  };

  [[nodiscard]] double max_allowed_silence(const Progress& report) const;
  [[nodiscard]] std::optional<std::size_t> find_stalled_rank() const;
  SupervisionTimeouts timeouts_;
  std::vector<Rank> ranks_;
  std::optional<double> first_report_;
  bool has_trained_ = false;  ///< a step has begun
  std::uint64_t max_step_ = 0;
  std::optional<double> last_advance_;  ///< when max_step_ was reached; nullopt once a rank was busy
  RecentMaximum step_seconds_;          ///< estimated from the reports; 0: unknown
  std::optional<double> all_waiting_since_;
};

}  // namespace lockstep
