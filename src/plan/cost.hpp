// What a step will cost: kernels timed on this machine, sums over ranks timed on the links that carry them.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "plan/division.hpp"
#include "plan/plan.hpp"

#include <lockstep/nn/optimizers.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// How long it takes to sum up so many bytes over the ranks, from a few sizes.
class LinkTimes {
 public:
  LinkTimes() = default;
  /// Sizes and seconds, in ascending order of sizes, at least two.
  explicit LinkTimes(std::vector<std::pair<double, double>> points) : points_(std::move(points)) {}

  /// Of a link that is only described: every rank sends and receives twice (n - 1) / n of the bytes, in 2 log2(n)
  /// rounds (R. Thakur et al., 2005).
  LinkTimes(double latency, double bytes_per_second, int ranks);

  [[nodiscard]] double seconds(double bytes) const;
  [[nodiscard]] const std::vector<std::pair<double, double>>& points() const noexcept { return points_; }

  /// As a search for a division takes it.
  [[nodiscard]] Speeds speeds(int ranks) const;

 private:
  std::vector<std::pair<double, double>> points_;
};

/// The sizes that are timed, in bytes.
inline constexpr std::size_t timed_sizes[] = {64, std::size_t{64} << 10U, std::size_t{416} << 10U};

/// Times sums by a communicator of its own, which nobody has used yet. Collective; every rank has its own opinion.
[[nodiscard]] LinkTimes measure_link(Communicator& communicator);

/// Seconds of each operation of Plan::training, without communication, for batches of `rows` examples on this rank.
/// `neighbours`: ranks of this host, which share its updates.
[[nodiscard]] std::vector<double> measure_compute(const Backend& backend, const Plan& plan, const Optimizer& optimizer,
                                                  std::size_t rows, int neighbours);

/// Bytes that ranks sum up in a step.
[[nodiscard]] std::size_t summed_bytes(const Plan& plan);

/// Bytes that a rank gives to others.
[[nodiscard]] std::size_t sent_bytes(const ExchangeSpec& exchange, int rank);

/// How long a step takes of which each operation takes so long: sums travel one after the other while operations go on,
/// until one needs what has not arrived.
[[nodiscard]] double replay(const Plan& plan, const std::vector<double>& seconds, const LinkTimes& link);

/// The divisions among which measuring is to decide: the best for this link, and for links faster and slower.
[[nodiscard]] std::vector<FeatureDivision> divisions_to_try(const Graph& whole, int ranks, std::size_t batch,
                                                            const Speeds& speeds);

}  // namespace lockstep
