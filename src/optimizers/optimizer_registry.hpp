// The traits of all optimizers, queried for any optimizer. lockstep/optimizers/optimizers.hpp
// has the list, a variant.
#pragma once

#include "optimizers/adadelta.hpp"
#include "optimizers/adagrad.hpp"
#include "optimizers/adam.hpp"
#include "optimizers/adamax.hpp"
#include "optimizers/ftrl.hpp"
#include "optimizers/lion.hpp"
#include "optimizers/nadam.hpp"
#include "optimizers/optimizer_traits.hpp"
#include "optimizers/rmsprop.hpp"
#include "optimizers/sgd.hpp"
#include "optimizers/shared_update.hpp"

#include <lockstep/optimizers/optimizers.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// How often the weights have changed before step `iteration`, which counts from 1.
[[nodiscard]] constexpr std::uint64_t changes_before(int accumulated_steps, std::uint64_t iteration) noexcept {
  return (iteration - 1) / (accumulated_steps > 0 ? static_cast<std::uint64_t>(accumulated_steps) : 1);
}

/// What a step does around the update rule.
[[nodiscard]] SharedUpdate shared_update(const Optimizer& optimizer, std::uint64_t iteration) noexcept;

/// Calls visitor(rule) with the update rule of a step. `iteration` counts steps from 1. The rule's type depends only on
/// the optimizer.
template <typename Visitor>
void with_update_rule(const Optimizer& optimizer, std::uint64_t iteration, Visitor&& visitor) {
  std::visit(
      [&](const auto& options) {
        const StepTime step{options.learning_rate.at(iteration - 1),
                            static_cast<double>(changes_before(options.gradient_accumulation_steps, iteration) + 1)};
        detail::visit_rule(visitor, OptimizerTraits<std::decay_t<decltype(options)>>::update(options, step));
      },
      optimizer);
}

/// All slots, in the order of the arenas: those of SharedUpdate, then those of the update rule.
[[nodiscard]] Slots slots_of(const Optimizer& optimizer);

/// A number that Keras' files hold after the slots after `iteration` steps; none for most optimizers.
[[nodiscard]] std::optional<float> last_variable(const Optimizer& optimizer, std::int64_t iteration) noexcept;

/// Where Keras' files list slot `slot` of trainable weight `weight`, of a model that has `weights` of them.
[[nodiscard]] std::size_t slot_index(const Slots& slots, std::size_t slot, std::size_t weight,
                                     std::size_t weights) noexcept;

/// "SGD", "adam", "adamw", "rmsprop": Keras' name of the object (not the class), the prefix of its variables' names.
[[nodiscard]] std::string_view keras_instance_name(const Optimizer& optimizer) noexcept;

/// Whether a row of an Embedding that occurs several times in a batch trains differently on Keras' backends: TensorFlow
/// clips and squares the gradient of each occurrence, the others their sum.
[[nodiscard]] bool depends_on_repeated_rows(const Optimizer& optimizer) noexcept;

/// Visits the fields of any optimizer, including the common ones, in the order of Keras' files.
template <typename T>
void visit_fields(auto& visit, T& optimizer) {
  const auto clipping = [&visit](const char* key, auto& bound) {
    visit.written_if(bound > 0, key, bound, not_negative);
  };
  visit.optional("learning_rate", optimizer.learning_rate);
  using Traits = OptimizerTraits<std::remove_const_t<T>>;
  Traits::fields(visit, optimizer);
  if constexpr (!requires { Traits::decays_weights; }) {
    visit.written_if(optimizer.weight_decay > 0, "weight_decay", optimizer.weight_decay, not_negative);
  }
  clipping("clipnorm", optimizer.clipnorm);
  clipping("clipvalue", optimizer.clipvalue);
  clipping("global_clipnorm", optimizer.global_clipnorm);
  visit.written_if(optimizer.use_ema, "use_ema", optimizer.use_ema);
  visit.written_if(optimizer.use_ema, "ema_momentum", optimizer.ema_momentum, zero_to_one);
  visit.written_if(optimizer.ema_overwrite_frequency > 0, "ema_overwrite_frequency", optimizer.ema_overwrite_frequency,
                   not_negative);
  visit.written_if(optimizer.gradient_accumulation_steps > 0, "gradient_accumulation_steps",
                   optimizer.gradient_accumulation_steps, not_negative);
}

}  // namespace lockstep
