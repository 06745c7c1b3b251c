// Counters of a server, for Prometheus.
#pragma once

#include "serve/connection_table.hpp"
#include "serve/served_model.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace lockstep {

/// Any thread may call its functions.
class ServingMetrics {
 public:
  void count_reply(int code, double seconds);
  void count_batch(std::size_t examples);
  void count_load(bool has_succeeded);

  /// In Prometheus' text format. `waiting`: examples in the queue. `connections` may be null.
  [[nodiscard]] std::string to_text(const ServedState& state, std::size_t waiting,
                                    const ConnectionTable* connections) const;

 private:
  static constexpr std::array<double, 10> bounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5};  // seconds

  mutable std::mutex mutex_;
  std::map<int, std::uint64_t> replies_;
  std::array<std::uint64_t, bounds.size() + 1> latencies_{};
  double seconds_ = 0;
  std::uint64_t batches_ = 0;
  std::uint64_t examples_ = 0;
  std::uint64_t loads_ = 0;
  std::uint64_t failed_loads_ = 0;
};

}  // namespace lockstep
