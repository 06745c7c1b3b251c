// Computes Keras' schedules in double precision.
#include "optimizers/schedules.hpp"

#include <lockstep/optimizers/learning_rate.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <type_traits>
#include <variant>

namespace lockstep {
namespace {

double periods(std::uint64_t iteration, Steps decay_steps, bool staircase) noexcept {
  const double count = static_cast<double>(iteration) / decay_steps.count;
  return staircase ? std::floor(count) : count;
}

}  // namespace

LearningRate::LearningRate(const LearningRate&) = default;
LearningRate::LearningRate(LearningRate&&) noexcept = default;
LearningRate& LearningRate::operator=(const LearningRate&) = default;
LearningRate& LearningRate::operator=(LearningRate&&) noexcept = default;
LearningRate::~LearningRate() = default;

double ExponentialDecay::at(std::uint64_t iteration) const noexcept {
  return initial_learning_rate * std::pow(decay_rate, periods(iteration, decay_steps, staircase));
}

double PiecewiseConstantDecay::at(std::uint64_t iteration) const noexcept {
  const auto ends_before = [](const Steps& boundary, double step) { return boundary.count < step; };
  const auto boundary =
      std::lower_bound(boundaries.begin(), boundaries.end(), static_cast<double>(iteration), ends_before);
  return values[static_cast<std::size_t>(boundary - boundaries.begin())];
}

double PolynomialDecay::at(std::uint64_t iteration) const noexcept {
  auto step = static_cast<double>(iteration);
  double steps = decay_steps.count;
  if (cycle) {
    steps *= std::max(1.0, std::ceil(step / steps));
  } else {
    step = std::min(step, steps);
  }
  return (initial_learning_rate - end_learning_rate) * std::pow(1 - step / steps, power) + end_learning_rate;
}

double InverseTimeDecay::at(std::uint64_t iteration) const noexcept {
  return initial_learning_rate / (1 + decay_rate * periods(iteration, decay_steps, staircase));
}

double CosineDecay::at(std::uint64_t iteration) const noexcept {
  auto step = static_cast<double>(iteration);
  double from = initial_learning_rate;
  if (warmup_target) {
    if (step < warmup_steps.count) return (*warmup_target - from) * step / warmup_steps.count + from;
    step -= warmup_steps.count;
    from = *warmup_target;
  }
  const double way = std::min(step, decay_steps.count) / decay_steps.count;
  return from * ((1 - alpha) * (1 + std::cos(std::numbers::pi * way)) / 2 + alpha);
}

double CosineDecayRestarts::at(std::uint64_t iteration) const noexcept {
  auto step = static_cast<double>(iteration);
  double steps = first_decay_steps.count;
  double factor = 1;
  if (t_mul == 1) {
    const double restarts = std::floor(step / steps);
    step -= restarts * steps;
    factor = std::pow(m_mul, restarts);
  }
  for (; step >= steps; steps *= t_mul) {
    step -= steps;
    factor *= m_mul;
  }
  return initial_learning_rate * ((1 - alpha) * factor * (1 + std::cos(std::numbers::pi * step / steps)) / 2 + alpha);
}

double LearningRate::at(std::uint64_t iteration) const noexcept {
  return std::visit(
      [iteration](const auto& kind) {
        if constexpr (std::is_same_v<std::decay_t<decltype(kind)>, double>) {
          return kind;
        } else {
          return kind.at(iteration);
        }
      },
      kind_);
}

std::string_view keras_name(const LearningRate& rate) noexcept {
  return std::visit(
      []<typename Kind>(const Kind& /*kind*/) -> std::string_view {
        if constexpr (std::is_same_v<Kind, double>) {
          return "constant";
        } else {
          return ScheduleTraits<Kind>::class_name;
        }
      },
      rate.kind());
}

}  // namespace lockstep
