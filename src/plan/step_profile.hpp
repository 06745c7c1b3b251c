// Where the time of training steps went. Step fills it in; evaluation and prediction are not counted.
//
// Time inside Step::train is counted once, either in `seconds` or in `communication`; both add up to `total`, except
// for the loop itself. An update sums the gradients of the ranks of its host, so that sum counts as `seconds`. On a GPU
// `seconds` are times on the device with LOCKSTEP_CUDA_PROFILE=1, else those that the host takes to enqueue work. A
// replayed step enqueues nothing and counts in `total` only.
#pragma once

#include "plan/plan.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

struct StepProfile {
  std::vector<double> seconds;  ///< by index in Plan::training; an update includes publishing its shard
  double communication = 0;     ///< seconds of sending, reducing between hosts, waiting for other ranks
  double waiting = 0;           ///< seconds of `communication` in which this rank waited for other ranks
  double total = 0;             ///< seconds inside Step::train
  std::uint64_t steps = 0;

  /// Milliseconds per step by kind of work: input, forward, loss, backward, optimizer, communication. All-to-all
  /// packing counts as communication.
  [[nodiscard]] std::map<std::string, double> by_kind(const Plan& plan) const;

  /// Milliseconds per step by operation and layer ("dense_backward dense"), compute only.
  [[nodiscard]] std::map<std::string, double> by_operation(const Plan& plan) const;
};

}  // namespace lockstep
