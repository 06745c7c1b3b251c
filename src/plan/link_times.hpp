// How long sums over the ranks take on the links that carry them: measured, or of a link that is only described.
#pragma once

#include "collective/communicator.hpp"
#include "plan/division.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

/// How long it takes to sum up so many bytes over the ranks, from a few sizes.
class LinkTimes {
 public:
  LinkTimes() = default;
  /// Sizes and seconds, in ascending order of sizes, at least two. `busy_per_byte`: seconds of computing that a byte
  /// costs a rank which sums while it computes.
  explicit LinkTimes(std::vector<std::pair<double, double>> points, double busy_per_byte = 0)
      : points_(std::move(points)), busy_per_byte_(busy_per_byte) {}

  /// Of a link that is only described: every rank sends and receives twice (n - 1) / n of the bytes, in 2 log2(n)
  /// rounds (R. Thakur et al., 2005).
  LinkTimes(double latency, double bytes_per_second, int ranks);

  [[nodiscard]] double seconds(double bytes) const;
  /// For how long a sum keeps the next one waiting: the link is taken by its bytes alone, at the rate of many.
  [[nodiscard]] double occupied(double bytes) const { return seconds_per_byte() * bytes; }
  [[nodiscard]] double busy_per_byte() const noexcept { return busy_per_byte_; }
  [[nodiscard]] const std::vector<std::pair<double, double>>& points() const noexcept { return points_; }

  /// As a search for a division takes it.
  [[nodiscard]] Speeds speeds(int ranks) const;

 private:
  /// Where sums are so many that latency no longer counts.
  [[nodiscard]] double seconds_per_byte() const;

  std::vector<std::pair<double, double>> points_;
  double busy_per_byte_ = 0;
};

/// Times sums by a communicator of its own, which nobody has used yet. Collective, and all ranks get the same:
/// sums' times as all have them on average, and what they cost the slowest one's core. Takes some 0.1 seconds, on slow
/// links a few tenths.
[[nodiscard]] LinkTimes measure_link(Communicator& communicator);

}  // namespace lockstep
