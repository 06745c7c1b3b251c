// Metric sums of training and evaluation steps.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

/// Sums over the examples of one or more steps, reduced over all workers. Model::to_logs returns the metrics' values.
struct StepMetrics {
  double loss_sum = 0;
  double num_examples = 0;
  std::vector<double> sums = {};  ///< of the model's metrics, concatenated; may be empty if there are no examples

  [[nodiscard]] double loss() const noexcept { return num_examples > 0 ? loss_sum / num_examples : 0.0; }
  StepMetrics& operator+=(const StepMetrics& other) {
    loss_sum += other.loss_sum;
    num_examples += other.num_examples;
    if (sums.size() < other.sums.size()) sums.resize(other.sums.size());
    for (std::size_t i = 0; i < other.sums.size(); ++i) sums[i] += other.sums[i];
    return *this;
  }
};

}  // namespace lockstep
