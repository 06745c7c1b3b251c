// What became of a worker's gradients, where parameter servers make steps that are not those of all workers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace lockstep {

struct GradientCounts {
  /// Upper bounds of the staleness: the updates between the weights of a gradient and the update that it makes.
  static constexpr std::array<std::uint64_t, 7> bounds{0, 1, 2, 4, 8, 16, 32};

  std::array<std::uint64_t, bounds.size() + 1> by_staleness{};  ///< applied gradients; the last ones exceed all bounds
  std::uint64_t total_staleness = 0;                            ///< of all of them
  std::uint64_t dropped = 0;                                    ///< gradients that came too late for their step

  void add_applied(std::uint64_t staleness) noexcept {
    const auto* const bound = std::lower_bound(bounds.begin(), bounds.end(), staleness);
    ++by_staleness[static_cast<std::size_t>(bound - bounds.begin())];
    total_staleness += staleness;
  }
  [[nodiscard]] std::uint64_t applied() const noexcept {
    return std::accumulate(by_staleness.begin(), by_staleness.end(), std::uint64_t{0});
  }
  GradientCounts& operator+=(const GradientCounts& other) noexcept {
    for (std::size_t i = 0; i < by_staleness.size(); ++i) by_staleness[i] += other.by_staleness[i];
    total_staleness += other.total_staleness;
    dropped += other.dropped;
    return *this;
  }
};

}  // namespace lockstep
