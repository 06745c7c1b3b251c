// The traits that the file of each loss declares. Everything that differs between losses is a member of LossTraits<T>;
// code for all losses uses only these. A missing member does not compile.
#pragma once

#include "core/host_device.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// The targets that a loss takes. Others would be taken by Keras too, and give a loss that means nothing.
enum class TargetRange {
  any,
  zero_to_one,  ///< the loss of others falls without end
  signs,        ///< -1 and 1, or 0 and 1
};

/// For each loss:
///   class_name            Keras' class
///   function_name         Keras' function
///   aliases               further names of the function
///   fields                Keras' keys except name and reduction (see core/fields.hpp)
///   takes_classes         whether targets are class indices; otherwise they have the output's shape
///   takes_one_hot         whether targets are one-hot vectors of classes, which class indices may stand for
///   targets               the TargetRange that its targets must have
///   is_per_vector         whether the rule reads one vector at a time, along the output's last axis, and the loss of
///   an
///                         example is the mean over its vectors; other rules read all outputs of an example
///   rule                  the LossRule of a loss
///   probabilities_of      for a loss with the field from_logits: the activation that turns logits into probabilities.
///                         After it, a loss with the field clips_probabilities that is not set is computed from the
///                         logits, whatever from_logits is. Keras on TensorFlow does so except for the focal losses.
///
/// Both backends call a rule as rule(output, count, target, gradient): `count` outputs, those of an example or of one
/// of its vectors. target(k) is the target of output k. If gradient.is_wanted(), the rule calls gradient(k, value) with
/// the derivative by each output. It returns the loss. Changing the order of its operations changes the bits of
/// results.
template <typename Loss>
struct LossTraits;

/// A class index as a one-hot target: 1 for the class, 0 for all others.
template <typename Index>
struct ClassTarget {
  Index expected;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(Index k) const { return k == expected ? 1.0F : 0.0F; }
};

/// A target with a number for each output.
template <typename Index>
struct DenseTarget {
  const float* values;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(Index k) const { return values[k]; }
};

/// A target moved by the fraction `smoothing` toward `center`.
template <typename Target>
struct SmoothedTarget {
  Target target;
  float smoothing;
  float center;

  template <typename Index>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(Index k) const {
    return target(k) * (1.0F - smoothing) + smoothing * center;
  }
};

/// Keras' epsilon: probabilities are kept this far from 0 and 1, and divisors from 0.
inline constexpr float loss_epsilon = 1e-7F;

/// Clips a probability; NaN stays NaN.
[[nodiscard]] LOCKSTEP_HOST_DEVICE inline float clip_probability(float p, float max = 1.0F - loss_epsilon) {
  return p < loss_epsilon ? loss_epsilon : max < p ? max : p;
}

/// The rule of losses that are a mean over the outputs. A term has value(output, target) and its derivative by the
/// output.
template <typename Term>
struct MeanOverOutputs {
  Term term;

  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(const float* output, Index count, const Target& target,
                                                      const Gradient& gradient) const {
    const auto n = static_cast<float>(count);
    float loss = 0;
    for (Index k = 0; k < count; ++k) {
      const float y = target(k);
      loss += term.value(output[k], y);
      if (gradient.is_wanted()) gradient(k, term.derivative(output[k], y) / n);
    }
    return loss / n;
  }
};

/// The traits that most losses share.
struct DenseLossTraits {
  static constexpr std::array<std::string_view, 0> aliases{};
  static constexpr bool takes_classes = false;
  static constexpr bool takes_one_hot = false;
  static constexpr bool is_per_vector = false;

  static void fields(auto& /*visit*/, auto& /*loss*/) {}
};

/// The traits of losses whose rule is MeanOverOutputs<Term> of a term without fields.
template <typename Term>
struct MeanLossTraits : DenseLossTraits {
  static MeanOverOutputs<Term> rule(const auto& /*loss*/) { return {}; }
};

}  // namespace lockstep
