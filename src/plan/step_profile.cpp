// See step_profile.hpp.
#include "plan/step_profile.hpp"

#include <array>
#include <cstddef>

namespace lockstep {

namespace {

/// The kind of work as which the profile counts a step of the plan.
const char* kind_of_work(const Plan& plan, const PlanStep& step) {
  constexpr std::array names{"input", "forward", "loss", "backward", "communication"};  // in the order of WorkKind
  const Operation* operation = plan.operation_of(step);
  return operation != nullptr ? names[static_cast<std::size_t>(traits_of(*operation).work)] : "optimizer";
}

}  // namespace

std::map<std::string, double> StepProfile::by_kind(const Plan& plan) const {
  std::map<std::string, double> milliseconds;
  if (steps == 0) return milliseconds;
  const double each = 1000.0 / static_cast<double>(steps);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    milliseconds[kind_of_work(plan, plan.training[i])] += seconds[i] * each;
  }
  milliseconds["communication"] += communication * each;
  return milliseconds;
}

std::map<std::string, double> StepProfile::by_operation(const Plan& plan) const {
  std::map<std::string, double> milliseconds;
  if (steps == 0) return milliseconds;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const Operation* operation = plan.operation_of(plan.training[i]);
    if (operation == nullptr) continue;
    const std::string name = std::string(to_string(operation->kind)) + " " + plan.graph.layers[operation->layer].name;
    milliseconds[name] += seconds[i] * 1000.0 / static_cast<double>(steps);
  }
  return milliseconds;
}

}  // namespace lockstep
