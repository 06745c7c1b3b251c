// Predicts how long a training step takes from the times of its kernels and of all-reduces.
#pragma once

#include "parallel/link_model.hpp"
#include "parallel/sharding.hpp"
#include "plan/plan.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Bytes that a rank sends to the other ranks in an all-to-all.
[[nodiscard]] std::size_t all_to_all_bytes_sent(const AllToAllSpec& all_to_all, int rank);

/// Seconds of a training step. `seconds[i]` is the time that Plan::training[i] computes, without communication
/// (measure_kernels). All-reduces run one after another and overlap operations, until a step needs a result that has
/// not arrived.
[[nodiscard]] double simulate_step(const Plan& plan, const std::vector<double>& seconds, const LinkModel& link);

/// The shardings worth measuring: the best for this link, for faster links and for a slower one. The last is
/// replicate_all, which is fastest on very slow links.
[[nodiscard]] std::vector<Sharding> candidate_shardings(const Graph& whole, int ranks, std::size_t batch,
                                                        const HardwareModel& hardware);

}  // namespace lockstep
