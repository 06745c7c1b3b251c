// See step_profile.hpp.
#include "plan/step_profile.hpp"

#include <cstddef>

namespace lockstep {

namespace {

/// The key under which by_kind counts a step of the plan.
const char* kind_of_work(const Plan& plan, const PlanStep& step) {
  const Operation* operation = plan.operation_of(step);
  if (operation == nullptr) return "optimizer";
  switch (traits_of(*operation).work) {
    case WorkKind::input: return "input";
    case WorkKind::forward: return "forward";
    case WorkKind::loss: return "loss";
    case WorkKind::backward: return "backward";
    case WorkKind::communication: return "communication";
  }
  return "";
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
