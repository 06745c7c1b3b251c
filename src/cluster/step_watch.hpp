// Which rank of a generation stands still, judged by what ranks tell of themselves. It knows no clock: reports and the
// time go in.
//
// Each rank is measured by what it does. Who computes a step may be silent for --stall-timeout, and for three times as
// long as it has been before while all was well: steps of ten seconds are no stall. Who waits for another gives signs
// of life, so it is only suspect when these stop as well. Who is busy, or does its first steps, has
// --busy-timeout. So the rank that is to blame shows itself, and those that wait for it do not. A rank that has never
// told anything is no program of Lockstep's, or is not yet: it has all the time it wants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/message.hpp"
#include "cluster/supervision.hpp"

namespace lockstep {

struct Stall {
  std::size_t rank = 0;
  std::string what;  ///< "no step for 4.1 s, it stands at step 12"
};

class StepWatch {
 public:
  explicit StepWatch(const Supervision& limits);

  /// A generation begins.
  void begin(std::size_t ranks);
  void hear(const Progress& report, double now);  ///< its rank exists
  void end(std::size_t rank) { ranks_[rank].ended = true; }
  /// So many seconds that just passed do not count: whoever measured was stopped.
  void forgive(double seconds) noexcept;

  /// The rank that stands still, if one does. Call it a few times a second.
  [[nodiscard]] std::optional<Stall> find(double now);

  /// The last report of a rank; nothing before its first.
  [[nodiscard]] const std::optional<Progress>& last(std::size_t rank) const { return ranks_.at(rank).last; }

 private:
  struct Rank {
    bool ended = false;
    std::optional<Progress> last;
  };

  [[nodiscard]] double allowed(const Progress& report) const;
  [[nodiscard]] std::optional<std::size_t> find_silent() const;
  [[nodiscard]] bool all_wait(double now);

  Supervision limits_;
  std::vector<Rank> ranks_;
  std::uint64_t furthest_step_ = 0;
  std::optional<double> moved_;  ///< when a rank came that far, if nobody has been busy since
  double longest_step_ = 0;      ///< as far as it can be told from reports; 0: not known
  std::optional<double> all_wait_since_;
};

}  // namespace lockstep
