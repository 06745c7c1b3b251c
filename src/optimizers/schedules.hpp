// Learning rate schedules: Keras' class names and fields, declared once for reader, writer and range check.
#pragma once

#include "core/fields.hpp"

#include <lockstep/optimizers/learning_rate.hpp>

#include <fmt/format.h>
#include <string>
#include <string_view>

namespace lockstep {

/// For each schedule: class_name (Keras' class) and fields in the order of Keras' files (see core/fields.hpp).
/// Optional: problem(schedule), for errors that ranges do not cover.
template <typename Schedule>
struct ScheduleTraits;

void visit_start(auto& visit, auto& schedule) {
  visit.required("initial_learning_rate", schedule.initial_learning_rate, not_negative);
  visit.required("decay_steps", schedule.decay_steps, positive);
}

void visit_decay_rate(auto& visit, auto& schedule) {
  visit_start(visit, schedule);
  visit.required("decay_rate", schedule.decay_rate, not_negative);
  visit.optional("staircase", schedule.staircase);
}

template <>
struct ScheduleTraits<ExponentialDecay> {
  static constexpr std::string_view class_name = "ExponentialDecay";

  static void fields(auto& visit, auto& schedule) { visit_decay_rate(visit, schedule); }
};

template <>
struct ScheduleTraits<PiecewiseConstantDecay> {
  static constexpr std::string_view class_name = "PiecewiseConstantDecay";

  static void fields(auto& visit, auto& schedule) {
    visit.required("boundaries", schedule.boundaries);
    visit.required("values", schedule.values, not_negative);
  }

  /// An error that the ranges of fields do not cover, to follow the class name in a message; empty if there is none.
  static std::string problem(const PiecewiseConstantDecay& schedule) {
    if (!schedule.boundaries.empty() && schedule.values.size() == schedule.boundaries.size() + 1) return {};
    return fmt::format(
        "values are {} for {} boundaries; give at least one boundary, and one value more than boundaries",
        schedule.values.size(), schedule.boundaries.size());
  }
};

template <>
struct ScheduleTraits<PolynomialDecay> {
  static constexpr std::string_view class_name = "PolynomialDecay";

  static void fields(auto& visit, auto& schedule) {
    visit_start(visit, schedule);
    visit.optional("end_learning_rate", schedule.end_learning_rate, not_negative);
    visit.optional("power", schedule.power, not_negative);
    visit.optional("cycle", schedule.cycle);
  }
};

template <>
struct ScheduleTraits<InverseTimeDecay> {
  static constexpr std::string_view class_name = "InverseTimeDecay";

  static void fields(auto& visit, auto& schedule) { visit_decay_rate(visit, schedule); }
};

template <>
struct ScheduleTraits<CosineDecay> {
  static constexpr std::string_view class_name = "CosineDecay";

  static void fields(auto& visit, auto& schedule) {
    visit_start(visit, schedule);
    visit.optional("alpha", schedule.alpha, not_negative);
    visit.optional("warmup_target", schedule.warmup_target, not_negative);  // Keras 2.13 and later
    visit.written_if(schedule.warmup_target.has_value(), "warmup_steps", schedule.warmup_steps, not_negative);
  }
};

template <>
struct ScheduleTraits<CosineDecayRestarts> {
  static constexpr std::string_view class_name = "CosineDecayRestarts";

  static void fields(auto& visit, auto& schedule) {
    visit.required("initial_learning_rate", schedule.initial_learning_rate, not_negative);
    visit.required("first_decay_steps", schedule.first_decay_steps, at_least_one);
    visit.optional("t_mul", schedule.t_mul, at_least_one);
    visit.optional("m_mul", schedule.m_mul, not_negative);
    visit.optional("alpha", schedule.alpha, not_negative);
  }
};

}  // namespace lockstep
