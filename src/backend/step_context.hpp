// The inputs of one step: the examples, the seed, and how the batch is split.
#pragma once

#include "core/range.hpp"
#include "core/stop_request.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

namespace lockstep {

/// The examples of one input.
using InputPointer = std::variant<const std::uint8_t*, const float*>;

/// The targets of one output: class indices, or dense rows.
using TargetPointer = std::variant<const std::int32_t*, const float*>;

/// The in-memory dataset from which steps gather their examples.
struct DataView {
  std::span<const InputPointer> inputs;    ///< by Graph::inputs, which say how they are scaled
  std::span<const TargetPointer> targets;  ///< by Graph::outputs
  std::size_t examples = 0;
  /// Dataset::id, for data that a device may cache: equal ids mean equal bytes. 0: do not cache.
  std::uint64_t dataset_id = 0;

  /// Null if there is no input: on a rank without examples.
  [[nodiscard]] InputPointer input(std::size_t index) const noexcept {
    return index < inputs.size() ? inputs[index] : InputPointer();
  }
  [[nodiscard]] TargetPointer target(std::size_t index) const noexcept {
    return index < targets.size() ? targets[index] : TargetPointer();
  }
};

/// The inputs of one step.
struct StepContext {
  DataView data;
  std::span<const std::uint32_t> examples;    ///< this rank's slice of the global batch; may be empty
  std::size_t batch_offset = 0;               ///< index of examples[0] in the global batch
  std::span<const Range> replicas;            ///< ranges of `examples`, one for each replica computed on this rank
  Range metric_examples{0, ~std::size_t{0}};  ///< the range of `examples` whose metrics this rank counts
  std::size_t total_replicas = 1;             ///< replicas of all ranks that have at least one example
  double gradient_scale = 1;                  ///< 1 / global batch
  std::span<const float> sample_weights;      ///< of `examples`; empty: all are 1
  double total_weight = 0;                    ///< the sum of the weights of the global batch, if there are any
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  StopRequest request = StopRequest::none;  ///< this rank's, from its launcher or Ctrl-C
  bool training = false;

  [[nodiscard]] float weight_of(std::size_t example) const noexcept {
    return sample_weights.empty() ? 1.0F : sample_weights[example];
  }

  /// `metric_examples` within the size of `examples`.
  [[nodiscard]] Range counted_examples() const noexcept {
    const std::size_t end = std::min(metric_examples.end, examples.size());
    return {std::min(metric_examples.begin, end), end};
  }
};

}  // namespace lockstep
