// The list of optimizers: includes the traits of all, and queries them for any optimizer.
#pragma once

#include "optimizers/adam.hpp"
#include "optimizers/optimizer_traits.hpp"
#include "optimizers/rmsprop.hpp"
#include "optimizers/sgd.hpp"

#include <lockstep/optimizers/optimizers.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

namespace lockstep {

namespace detail {

template <typename Visitor, typename Rule>
void visit_rule(Visitor& visitor, const Rule& rule) {
  visitor(rule);
}

template <typename Visitor, typename... Rules>
void visit_rule(Visitor& visitor, const std::variant<Rules...>& rule) {
  std::visit(visitor, rule);
}

}  // namespace detail

/// Calls visitor(rule) with the update rule of a step. `iteration` counts steps from 1. The rule's type depends only on
/// the optimizer.
template <typename Visitor>
void with_update_rule(const Optimizer& optimizer, std::uint64_t iteration, Visitor&& visitor) {
  std::visit(
      [&](const auto& options) {
        const StepTime step{options.learning_rate.at(iteration - 1), static_cast<double>(iteration)};
        detail::visit_rule(visitor, OptimizerTraits<std::decay_t<decltype(options)>>::update(options, step));
      },
      optimizer);
}

/// Slots in the order of the update rule's parameters, which is also their order in the arenas.
[[nodiscard]] Slots slots_of(const Optimizer& optimizer);

/// Where Keras' files list slot `slot` of trainable weight `weight`, of a model that has `weights` of them.
[[nodiscard]] std::size_t slot_index(const Slots& slots, std::size_t slot, std::size_t weight,
                                     std::size_t weights) noexcept;

/// "SGD", "adam", "adamw", "rmsprop": Keras' name of the object (not the class), the prefix of its variables' names.
[[nodiscard]] std::string_view keras_instance_name(const Optimizer& optimizer) noexcept;

/// Visits the fields of any optimizer, including the common ones, in the order of Keras' files.
template <typename T>
void visit_fields(auto& visit, T& optimizer) {
  const auto clipping = [&visit](const char* key, auto& bound) {
    visit.written_if(bound > 0, key, bound, not_negative);
  };
  visit.optional("learning_rate", optimizer.learning_rate);
  OptimizerTraits<std::remove_const_t<T>>::fields(visit, optimizer);
  clipping("clipnorm", optimizer.clipnorm);
  clipping("clipvalue", optimizer.clipvalue);
  clipping("global_clipnorm", optimizer.global_clipnorm);
}

}  // namespace lockstep
