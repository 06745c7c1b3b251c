// What a step will cost, from the times of its kernels and of the sums over the ranks.
#pragma once

#include "plan/division.hpp"
#include "plan/link_times.hpp"
#include "plan/plan.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Bytes that ranks sum up in a step.
[[nodiscard]] std::size_t summed_bytes(const Plan& plan);

/// Bytes that a rank gives to others.
[[nodiscard]] std::size_t sent_bytes(const ExchangeSpec& exchange, int rank);

/// How long a step takes of which each operation takes so long: sums travel one after the other while operations go on,
/// until one needs what has not arrived.
[[nodiscard]] double replay(const Plan& plan, const std::vector<double>& seconds, const LinkTimes& link);

/// The divisions among which measuring is to decide: the best for this link, and for links faster and slower; and last
/// none at all (FeatureDivision::divides_anything), for links that are slower than doing it all oneself.
[[nodiscard]] std::vector<FeatureDivision> divisions_to_try(const Graph& whole, int ranks, std::size_t batch,
                                                            const Speeds& speeds);

}  // namespace lockstep
