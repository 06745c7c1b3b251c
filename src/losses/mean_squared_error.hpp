// MeanSquaredError: names and rule.
#pragma once

#include "losses/loss_traits.hpp"

#include <lockstep/losses/mean_squared_error.hpp>

namespace lockstep {

struct SquaredErrorRule {
  template <typename Index, typename Target, typename Gradient>
  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(const float* output, Index count, const Target& target,
                                                      const Gradient& gradient) const {
    const auto n = static_cast<float>(count);
    float loss = 0;
    for (Index k = 0; k < count; ++k) {
      const float difference = output[k] - target(k);
      loss += difference * difference;
      if (gradient.is_wanted()) gradient(k, 2.0F * difference / n);
    }
    return loss / n;
  }
};

template <>
struct LossTraits<MeanSquaredError> {
  static constexpr std::string_view class_name = "MeanSquaredError";
  static constexpr std::string_view function_name = "mean_squared_error";
  static constexpr std::array<std::string_view, 1> aliases{"mse"};
  static constexpr bool takes_classes = false;
  static constexpr bool needs_class_vector = false;

  static void fields(auto& /*visit*/, auto& /*loss*/) {}

  static SquaredErrorRule rule(const MeanSquaredError& /*loss*/) { return {}; }
};

}  // namespace lockstep
