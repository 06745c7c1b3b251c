// Which parameter server holds which shard of the arenas, and the numbers by which servers make a step.
#pragma once

#include "core/range.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// A range of one bucket that one server holds.
struct ServerShard {
  std::size_t bucket = 0;
  Range range;
  std::size_t server = 0;

  friend bool operator==(const ServerShard&, const ServerShard&) = default;
};

/// Equal on all tasks of a job.
struct ServerLayout {
  std::vector<ServerShard> shards;  ///< of all servers, which cover all buckets; in order
  /// Where the arrays begin in the mirrored memory, in floats: the weights, then each of the optimizer's slots.
  std::vector<std::size_t> arrays;
  std::optional<std::size_t> low_precision;  ///< where the copies of the weights in 16 bits begin, in bytes
};

struct StepNumbers {
  std::uint64_t iteration = 0;          ///< of the optimizer, from 1
  std::optional<double> learning_rate;  ///< unless a schedule gives it

  friend bool operator==(const StepNumbers&, const StepNumbers&) = default;
};

}  // namespace lockstep
