// Crossentropy of outputs that are neither logits nor probabilities, by Keras' formulas.
#include "support/catch.hpp"
#include "support/loss_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Values = std::vector<double>;

double clip(double p) { return std::clamp(p, 1e-7, 1 - 1e-7); }

/// Keras divides by the sum, then clips, then takes the logarithm.
double divided_then_clipped(const Values& outputs, const Values& targets) {
  double sum = 0;
  for (const double p : outputs) sum += p;
  double loss = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) loss -= targets[k] * std::log(clip(outputs[k] / sum));
  return loss;
}

/// Of class indices, Keras on TensorFlow clips, and passes the logarithm as logits.
double clipped_then_divided(const Values& outputs, const Values& targets) {
  double sum = 0;
  for (const double p : outputs) sum += clip(p);
  double loss = 0;
  for (std::size_t k = 0; k < outputs.size(); ++k) loss -= targets[k] * std::log(clip(outputs[k]) / sum);
  return loss;
}

template <typename Formula>
void check_rule(const Loss& loss, const Values& outputs, const Values& targets, const Formula& formula) {
  const LossGradient found = loss_gradient(loss, {outputs.begin(), outputs.end()}, {targets.begin(), targets.end()});
  CHECK(found.loss == Approx(formula(outputs, targets)).epsilon(1e-5).margin(1e-6));
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    Values above = outputs;
    Values below = outputs;
    const double h = 1e-6 * std::max(outputs[k], 1e-3);
    above[k] += h;
    below[k] -= h;
    INFO("output " << k);
    CHECK(found.gradient[k] ==
          Approx((formula(above, targets) - formula(below, targets)) / (2 * h)).epsilon(1e-3).margin(1e-4));
  }
}

}  // namespace

TEST_CASE("crossentropies of unnormalised outputs match their formulas and central differences") {
  const std::vector<Values> outputs{{0.2, 0.5, 0.3}, {0.9, 0.8, 0.95}, {3, 5, 0.25}, {1e-3, 2e-3, 0.5}, {0.4, 0, 0.2}};
  const std::vector<Values> targets{{0, 1, 0}, {1, 0, 0}, {0.25, 0.5, 0.25}, {0.5, 0, 1}};
  for (const Values& output : outputs) {
    for (const Values& target : targets) {
      INFO(output[0] << ' ' << output[1] << ' ' << output[2] << ", targets " << target[0] << ' ' << target[1]);
      check_rule(CategoricalCrossentropy(), output, target, divided_then_clipped);
      check_rule(SparseCategoricalCrossentropy(), output, target, clipped_then_divided);
      check_rule(SparseCategoricalCrossentropy{.clips_probabilities = true}, output, target, divided_then_clipped);
    }
  }
}
