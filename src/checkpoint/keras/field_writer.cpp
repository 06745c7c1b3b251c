// See field_writer.hpp.
#include "checkpoint/keras/field_writer.hpp"

#include "layers/constraints.hpp"
#include "layers/initializers.hpp"
#include "layers/regularizers.hpp"
#include "optimizers/schedules.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep {

void FieldWriter::batch_shape(const Shape& shape) const {
  Json extents = to_json(shape);
  extents.insert(extents.begin(), nullptr);
  config_["batch_input_shape"] = std::move(extents);
}

void FieldWriter::noise_shape(const char* key, const Shape& shape) const {
  config_[key] = nullptr;
  if (shape.rank() == 0) return;
  Json extents = to_json(shape);
  extents.insert(extents.begin(), nullptr);
  config_[key] = std::move(extents);
}

FieldWriter::Json FieldWriter::to_json(FanMode mode) {
  return std::ranges::find(fan_modes, mode, [](const auto& named) { return named.first; })->second;
}

FieldWriter::Json FieldWriter::to_json(Distribution distribution) {
  return std::ranges::find(distributions, distribution, [](const auto& named) { return named.first; })->second;
}

/// Keras takes whole numbers of steps as integers.
FieldWriter::Json FieldWriter::to_json(Steps steps) {
  constexpr double max_exact = 1e15;  // doubles below it represent every whole number
  if (steps.count == std::floor(steps.count) && std::abs(steps.count) < max_exact) {
    return static_cast<std::int64_t>(steps.count);
  }
  return steps.count;
}

FieldWriter::Json FieldWriter::to_json(const std::vector<Steps>& values) {
  Json list = Json::array();
  for (const Steps& steps : values) list.push_back(to_json(steps));
  return list;
}

FieldWriter::Json FieldWriter::to_json(Initializer initializer) {
  const InitializerRow& row = row_of(initializer);
  Json config = Json::object();
  const FieldWriter write(config);
  visit_initializer_fields(write, initializer);
  if (row.distribution != Distribution::constant) config["seed"] = nullptr;
  return {{"class_name", row.class_name}, {"config", config}};
}

FieldWriter::Json FieldWriter::to_json(const Regularizer& regularizer) {
  const RegularizerRow& row = row_of(regularizer);
  Json config = Json::object();
  if (row.has_l1) config["l1"] = regularizer.l1;
  if (row.has_l2) config["l2"] = regularizer.l2;
  return {{"class_name", row.class_name}, {"config", config}};
}

/// Keras' own form of the axes: a number, a list, or None for all.
FieldWriter::Json FieldWriter::to_json(const Constraint& constraint) {
  const ConstraintRow& row = row_of(constraint);
  Json config = Json::object();
  if (row.has_min) config["min_value"] = constraint.min_value;
  if (row.has_max) config["max_value"] = constraint.max_value;
  if (row.has_min) config["rate"] = constraint.rate;
  if (row.has_axis) config["axis"] = constraint.axis.size() == 1 ? Json(constraint.axis[0]) : to_json(constraint.axis);
  return {{"class_name", row.class_name}, {"config", config}};
}

/// Includes the module: without it, Keras 3 does not find a schedule's class in either file format.
FieldWriter::Json FieldWriter::to_json(const LearningRate& rate) {
  return std::visit(
      [&rate]<typename Schedule>(const Schedule& schedule) -> Json {
        if constexpr (std::is_same_v<Schedule, double>) {
          return schedule;
        } else {
          Json config = Json::object();
          const FieldWriter write(config);
          ScheduleTraits<Schedule>::fields(write, schedule);
          return {{"module", "keras.optimizers.schedules"},
                  {"class_name", keras_name(rate)},
                  {"config", std::move(config)},
                  {"registered_name", nullptr}};
        }
      },
      rate.kind());
}

}  // namespace lockstep
