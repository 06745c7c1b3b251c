// A loss of one example, with its gradient.
#pragma once

#include "losses/loss_registry.hpp"

#include <cstddef>
#include <vector>

namespace lockstep::testing {

struct LossGradient {
  float loss = 0;
  std::vector<float> gradient;
};

[[nodiscard]] inline LossGradient loss_gradient(const Loss& loss, const std::vector<float>& outputs,
                                                const std::vector<float>& targets) {
  struct Gradient {
    std::vector<float>& values;
    [[nodiscard]] static bool is_wanted() { return true; }
    void operator()(std::size_t k, float value) const { values[k] = value; }
  };
  LossGradient found{.gradient = std::vector<float>(outputs.size())};
  with_loss_rule(loss, [&]<bool takes_classes>(const auto& rule) {
    found.loss =
        rule(outputs.data(), outputs.size(), DenseTarget<std::size_t>{targets.data()}, Gradient{found.gradient});
  });
  return found;
}

}  // namespace lockstep::testing
