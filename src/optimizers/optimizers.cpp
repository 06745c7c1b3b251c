// See optimizers.hpp.
#include "optimizers/optimizer_registry.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/optimizers/optimizers.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace lockstep {
namespace {

template <typename Options>
using TraitsOf = OptimizerTraits<std::decay_t<Options>>;

}  // namespace

std::string_view keras_name(const Optimizer& optimizer) noexcept {
  return std::visit([](const auto& options) { return TraitsOf<decltype(options)>::class_name; }, optimizer);
}

std::string_view keras_instance_name(const Optimizer& optimizer) noexcept {
  return std::visit([](const auto& options) { return TraitsOf<decltype(options)>::object_name; }, optimizer);
}

const LearningRate& learning_rate_of(const Optimizer& optimizer) noexcept {
  return std::visit([](const auto& options) -> const LearningRate& { return options.learning_rate; }, optimizer);
}

void set_learning_rate(Optimizer& optimizer, double learning_rate) {
  const LearningRate& rate = learning_rate_of(optimizer);
  if (!rate.is_constant()) {
    throw UsageError("the learning rate of " + std::string(keras_name(optimizer)) + " follows the schedule " +
                     std::string(keras_name(rate)) +
                     " and cannot be set; to change it, compile the model with a number instead of a schedule");
  }
  replace_learning_rate(optimizer, learning_rate);
}

void replace_learning_rate(Optimizer& optimizer, const LearningRate& learning_rate) {
  std::visit([&learning_rate](auto& options) { options.learning_rate = learning_rate; }, optimizer);
}

Slots slots_of(const Optimizer& optimizer) {
  return std::visit([](const auto& options) { return TraitsOf<decltype(options)>::slots(options); }, optimizer);
}

int num_slots(const Optimizer& optimizer) { return static_cast<int>(slots_of(optimizer).slots.size()); }

std::size_t slot_index(const Slots& slots, std::size_t slot, std::size_t weight, std::size_t weights) noexcept {
  return slots.interleaved ? weight * slots.slots.size() + slot : slot * weights + weight;
}

Clipping clipping_of(const Optimizer& optimizer) noexcept {
  return std::visit(
      [](const auto& options) -> Clipping {
        if (options.clipnorm > 0) return {ClippingKind::clipnorm, options.clipnorm};
        if (options.clipvalue > 0) return {ClippingKind::clipvalue, options.clipvalue};
        if (options.global_clipnorm > 0) return {ClippingKind::global_clipnorm, options.global_clipnorm};
        return {};
      },
      optimizer);
}

std::string_view keras_name(ClippingKind kind) noexcept {
  switch (kind) {
    case ClippingKind::clipnorm: return "clipnorm";
    case ClippingKind::clipvalue: return "clipvalue";
    case ClippingKind::global_clipnorm: return "global_clipnorm";
    case ClippingKind::none: break;
  }
  return {};
}

}  // namespace lockstep
