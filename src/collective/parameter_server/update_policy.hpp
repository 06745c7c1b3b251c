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

  /// Whether every update adds up the gradients of all workers.
  [[nodiscard]] bool waits_for_all(std::size_t workers) const noexcept {
    return !is_asynchronous && gradients == workers;
  }
};

}  // namespace lockstep
