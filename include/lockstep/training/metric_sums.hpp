// Sums of losses and metrics over examples.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

/// Sums over the examples of a step, of several steps or of a dataset. Those that Model returns are of all workers
/// together; Model::to_logs turns them into the metrics' values.
struct MetricSums {
  double loss_sum = 0;
  double num_examples = 0;
  std::vector<double> sums = {};  ///< of the model's metrics, concatenated; may be empty if there are no examples

  [[nodiscard]] double loss() const noexcept { return num_examples > 0 ? loss_sum / num_examples : 0.0; }
  MetricSums& operator+=(const MetricSums& other) {
    loss_sum += other.loss_sum;
    num_examples += other.num_examples;
    if (sums.size() < other.sums.size()) sums.resize(other.sums.size());
    for (std::size_t i = 0; i < other.sums.size(); ++i) sums[i] += other.sums[i];
    return *this;
  }
};

}  // namespace lockstep
