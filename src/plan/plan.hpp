// The plan: the fixed list of operations that one step is, and where everything lies. A value: it can be printed,
// compared and sent; the same on all ranks.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct Plan {
  Graph graph;
  std::size_t elements = 0;          ///< of each arena
  std::size_t own_elements = 0;      ///< of each of this rank's own arenas
  std::vector<BucketRange> buckets;  ///< in the order in which backward completes them
  std::vector<Operation> compute;    ///< the compute operations by id: what a backend compiles
  std::vector<Operation> training;   ///< one step
  std::vector<Operation> inference;  ///< forward only
  std::size_t metrics_bucket = 0;
  /// In one of so many steps ranks sum up their metrics. Seldom where each computes the loss of the whole batch, and so
  /// knows them without; there they have a bucket to themselves.
  std::uint64_t metrics_every = 1;
  std::vector<BucketRange> own_ranges;  ///< of the own arenas, as updates take them
  std::string division;  ///< how layers are divided by features, the same on all ranks; empty: they are not

  /// Tensors, buckets and operations, a line each.
  [[nodiscard]] std::string to_string() const;

  /// 16 hexadecimal digits (FNV-1a) over all that ranks must agree on: layouts, parameters and buckets, not in how many
  /// slices each computes. Ranks compare it before the first step.
  /// Of what is divided by features each rank holds something else, so there it is over what they sum up.
  [[nodiscard]] std::string digest() const;

  /// What a step runs that sums up its metrics, or one that does not: places in `training`.
  [[nodiscard]] std::vector<std::size_t> operations_of_step(bool sums_metrics) const;

  /// What ranks sum beside gradients of weights: metrics, moving averages, values and their gradients between layers.
  [[nodiscard]] std::vector<BucketRange> sums_that_are_no_gradients() const;
};

inline constexpr std::size_t line_elements = 16;  ///< a cache line of floats: shares and parameters begin on one

/// What a parameter takes of an arena: whole lines.
[[nodiscard]] std::size_t elements_in_arena(const ParameterSpec& parameter);

/// A model that begins with convolutions and poolings runs through them slice by slice of the batch, as many examples
/// at once as fit the backend's cache, forward and backward.
///
/// Lays the arenas out in reverse layer order, cuts buckets, and orders compute and communication.
/// `graph` has its layouts (Backend::lay_out).
[[nodiscard]] Plan make_plan(Graph graph, const PlanOptions& options = {});

}  // namespace lockstep
