// What steps and models are asked for: metric sums and variables.
#pragma once

#include <lockstep/core/shape.hpp>

#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Loss and metrics of one global batch, reduced over all workers.
struct StepMetrics {
  double loss_sum = 0;  ///< over the batch's examples
  double correct = 0;   ///< examples whose class was predicted
  double count = 0;     ///< examples

  [[nodiscard]] double loss() const noexcept { return count > 0 ? loss_sum / count : 0.0; }
  [[nodiscard]] double accuracy() const noexcept { return count > 0 ? correct / count : 0.0; }
  StepMetrics& operator+=(const StepMetrics& other) noexcept {
    loss_sum += other.loss_sum;
    correct += other.correct;
    count += other.count;
    return *this;
  }
};

/// A variable in Keras' layout, e.g. {"conv2d/kernel", {3, 3, 1, 32}, ...}.
struct Variable {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

/// What a callback carries from epoch to epoch, as backups keep it.
struct CallbackState {
  std::map<std::string, double> numbers;
  std::vector<Variable> weights;

  /// The number of this name; `otherwise` where the backup has none.
  [[nodiscard]] double number(const std::string& name, double otherwise) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? otherwise : found->second;
  }
};

}  // namespace lockstep
