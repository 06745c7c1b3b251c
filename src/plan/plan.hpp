// The plan: the fixed list of operations and communication of one training step, and the layout of the arenas. It is a
// value, so it can be printed and compared.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "plan/plan_step.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct Plan {
  Graph graph;
  std::size_t elements = 0;         ///< of the arenas of gradients and of each slot
  std::size_t weight_elements = 0;  ///< of the arena of weights, whose last elements are frozen
  std::size_t local_elements = 0;   ///< the same of this rank's local arenas
  std::size_t local_weight_elements = 0;
  std::vector<Range> buckets;       ///< ranges of the arenas, in the order of backward
  std::vector<Operation> compute;   ///< the operations that a backend compiles; one per microbatch
  std::vector<PlanStep> training;   ///< one training step
  std::vector<PlanStep> inference;  ///< forward only
  std::size_t metrics_bucket = 0;
  /// Ranks all-reduce their metrics every this many steps. More than 1 only if each rank computes the loss of the whole
  /// batch and therefore knows the metrics without communication. The metrics then have a separate bucket.
  std::uint64_t metrics_interval = 1;
  std::vector<Range> local_ranges;  ///< ranges of the local arenas, one for each UpdateLocal
  std::string sharding;             ///< Sharding::to_string, the same on all ranks; empty: data parallel

  /// The operation that a step computes; null for other steps.
  [[nodiscard]] const Operation* operation_of(const PlanStep& step) const noexcept;

  /// Tensors, parameters, buckets and steps, one line each.
  [[nodiscard]] std::string to_string() const;

  /// The algorithms and layouts of the convolutions, one line each. Part of `digest`.
  [[nodiscard]] std::vector<std::string> kernel_choices() const;

  /// 16 hexadecimal digits (FNV-1a) of what ranks must agree on: layouts, algorithms, parameters and buckets, but not
  /// the number of microbatches. Ranks compare it before the first step. For a tensor-parallel plan it omits sharded
  /// tensors and local parameters, which differ between ranks.
  [[nodiscard]] std::string digest() const;

  /// The indices in `training` of the steps to run, with or without the all-reduce of the metrics.
  [[nodiscard]] std::vector<std::size_t> places_of_step(bool reduces_metrics) const;

  /// The ranges that ranks all-reduce besides gradients of weights: metrics, moving averages, partial sums.
  [[nodiscard]] std::vector<Range> non_gradient_ranges() const;

  /// The forward operations of Embeddings whose gradients ranks all-reduce. A batch leaves many of their rows zero.
  [[nodiscard]] std::vector<Operation> reduced_embeddings() const;
  /// The ranges of their gradients.
  [[nodiscard]] std::vector<Range> embedding_ranges() const;

  /// The ranges of weights that have a constraint: one rank of a host updates the bucket of each.
  [[nodiscard]] std::vector<Range> constrained_ranges() const;
};

inline constexpr std::size_t cache_line_elements = 16;  ///< floats; shards and parameters begin on a cache line

/// The elements of an arena that a parameter occupies: whole cache lines.
[[nodiscard]] std::size_t arena_elements(const ParameterSpec& parameter);

/// Where an array begins in a copy of all arenas: the weights (`array` 0), then the slots (from 1).
[[nodiscard]] std::size_t offset_in_copy(const Plan& plan, std::size_t array);

/// Lays out the arenas in reverse layer order, forms buckets, and orders compute and communication. Convolutions and
/// poolings at a model's beginning run in microbatches that fit in the backend's cache. `graph` must have its layouts
/// (Backend::lay_out).
[[nodiscard]] Plan make_plan(Graph graph, const PlanOptions& options = {});

}  // namespace lockstep
