// When parameter servers update the weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep {

struct UpdatePolicy {
  std::size_t gradients = 0;     ///< that an update adds up: of all workers, of the first ones, or of one
  bool is_asynchronous = false;  ///< an update takes a gradient of older weights, too
  /// How many updates may lie between an asynchronous gradient's weights and its own update; none: any number.
  std::optional<std::uint64_t> max_staleness = {};
  /// Worker 0 computes no gradient, as the coordinator of TensorFlow's strategy. Only with asynchronous updates.
  bool chief_coordinates = false;

  [[nodiscard]] bool trains(std::size_t worker) const noexcept { return worker > 0 || !chief_coordinates; }
  /// Workers that compute gradients: a step's batch has a slice for each.
  [[nodiscard]] std::size_t training_workers(std::size_t workers) const noexcept {
    return workers - (chief_coordinates ? 1 : 0);
  }
  /// Whether every update adds up the gradients of all workers.
  [[nodiscard]] bool waits_for_all(std::size_t workers) const noexcept {
    return !is_asynchronous && gradients == workers;
  }
};

}  // namespace lockstep
