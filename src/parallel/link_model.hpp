// Predicts how long all-reduces take on a link, which is measured or given by latency and bandwidth.
#pragma once

#include "collective/communicator.hpp"
#include "parallel/sharding.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

/// Interpolates between the times of all-reduces of a few sizes.
class LinkModel {
 public:
  LinkModel() = default;
  /// `points` are bytes and seconds of at least two all-reduces, in ascending order of bytes. `cpu_seconds_per_byte` is
  /// the processor time that moving a byte between hosts costs a rank that computes at the same time; sums within a
  /// host are the optimizer's.
  explicit LinkModel(std::vector<std::pair<double, double>> points, double cpu_seconds_per_byte = 0)
      : points_(std::move(points)), cpu_seconds_per_byte_(cpu_seconds_per_byte) {}

  /// From latency (seconds) and bandwidth: every rank sends and receives 2 (n - 1) / n of the bytes in 2 log2(n) rounds
  /// (R. Thakur, R. Rabenseifner, W. Gropp, 2005).
  LinkModel(double latency, double bytes_per_second, int ranks);

  [[nodiscard]] double all_reduce_seconds(double bytes) const;
  /// How long an all-reduce delays the next one: its bytes occupy the link, its latency does not.
  [[nodiscard]] double occupied_seconds(double bytes) const { return seconds_per_byte() * bytes; }
  [[nodiscard]] double cpu_seconds_per_byte() const noexcept { return cpu_seconds_per_byte_; }
  [[nodiscard]] const std::vector<std::pair<double, double>>& points() const noexcept { return points_; }

  /// The hardware model for search_sharding.
  [[nodiscard]] HardwareModel hardware_model(int ranks) const;

 private:
  /// The slope between the two largest sizes, where latency is negligible.
  [[nodiscard]] double seconds_per_byte() const;

  std::vector<std::pair<double, double>> points_;
  double cpu_seconds_per_byte_ = 0;
};

/// Times all-reduces on a communicator that has not been used yet. Collective. All ranks get the same model: all-reduce
/// times are means over the ranks, the processor time is the maximum. Takes 0.1 s, on slow links up to 0.5 s.
[[nodiscard]] LinkModel measure_link(Communicator& communicator);

}  // namespace lockstep
