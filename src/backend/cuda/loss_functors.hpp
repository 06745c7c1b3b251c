// Functors of the losses and metrics: compute an example's loss and the gradient of the outputs, or add the example to
// a metric's sums.
#pragma once

#include "backend/cuda/elementwise_functors.hpp"
#include "losses/loss_registry.hpp"
#include "metrics/metric_registry.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep::cuda {

/// What a rule reads of an example: `count` outputs at a time.
struct Vectors {
  Index count;
  Index per_example;

  /// Where the outputs of a vector of one of this rank's examples begin.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::size_t begin(Index local_example, Index vector) const {
    return (static_cast<std::size_t>(local_example) * per_example + vector) * count;
  }
  template <bool takes_classes>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE auto target(const StepArguments& arguments, Index local_example,
                                                 Index vector) const {
    const std::size_t at = static_cast<std::size_t>(arguments.examples[local_example]) * per_example + vector;
    if constexpr (takes_classes) {
      return ClassTarget<Index>{static_cast<Index>(static_cast<const std::int32_t*>(arguments.targets)[at])};
    } else {
      return DenseTarget<Index>{static_cast<const float*>(arguments.targets) + at * count};
    }
  }
};

[[nodiscard]] LOCKSTEP_HOST_DEVICE inline float weight_of(const StepArguments& arguments, Index local_example) {
  return arguments.sample_weights == nullptr ? 1.0F : arguments.sample_weights[local_example];
}

/// Stores the derivatives of one example's loss, multiplied by `scale` and by the activation's derivative.
struct LossGradient {
  float* gradient;  ///< null if no gradient is needed
  const float* output;
  ActivationFunction function;  ///< the activation that produced the outputs
  float scale;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE bool is_wanted() const { return gradient != nullptr; }
  LOCKSTEP_HOST_DEVICE void operator()(Index k, float derivative) const {
    gradient[k] = activation_gradient(function, output[k], derivative * scale);
  }
};

template <bool takes_classes, typename Rule>
struct ExampleLoss {
  const StepArguments* arguments;
  Rule rule;
  const float* outputs;
  float* gradients;  ///< null if no gradients are needed
  Vectors vectors;
  ActivationFunction function;  ///< the activation that produced the outputs

  LOCKSTEP_HOST_DEVICE float operator()(Index local_example) const {
    const float weight = weight_of(*arguments, local_example);
    const auto per_example = static_cast<float>(vectors.per_example);
    float loss = 0;
    for (Index vector = 0; vector < vectors.per_example; ++vector) {
      const std::size_t begin = vectors.begin(local_example, vector);
      const float* output = outputs + begin;
      const LossGradient gradient{gradients == nullptr ? nullptr : gradients + begin, output, function,
                                  arguments->gradient_scale / per_example * weight};
      loss += rule(output, vectors.count, vectors.target<takes_classes>(*arguments, local_example, vector), gradient);
    }
    return weight * loss / per_example;
  }
};

template <bool takes_classes, typename Rule>
struct ExampleMetric {
  static constexpr std::size_t max_sums = Rule::max_sums;

  const StepArguments* arguments;
  Rule rule;
  const float* outputs;
  Vectors vectors;
  bool is_weighted;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float weight(Index local_example) const {
    return is_weighted ? weight_of(*arguments, local_example) : 1.0F;
  }
  LOCKSTEP_HOST_DEVICE void operator()(Index local_example, double* sums) const {
    for (Index vector = 0; vector < vectors.per_example; ++vector) {
      rule(outputs + vectors.begin(local_example, vector), vectors.count,
           vectors.target<takes_classes>(*arguments, local_example, vector), weight(local_example), sums);
    }
  }
};

}  // namespace lockstep::cuda
