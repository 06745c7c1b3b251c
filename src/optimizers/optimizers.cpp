// See optimizers.hpp.
#include "optimizers/optimizer_registry.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/optimizers/optimizers.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace lockstep {
namespace {

template <typename Options>
using TraitsOf = OptimizerTraits<std::decay_t<Options>>;

}  // namespace

Optimizer::Optimizer(const Optimizer&) = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(const Optimizer&) = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;
Optimizer::~Optimizer() = default;

std::string_view keras_name(const Optimizer& optimizer) noexcept {
  return std::visit([](const auto& options) { return TraitsOf<decltype(options)>::class_name; }, optimizer);
}

std::string_view keras_instance_name(const Optimizer& optimizer) noexcept {
  return std::visit([](const auto& options) { return TraitsOf<decltype(options)>::object_name; }, optimizer);
}

bool depends_on_repeated_rows(const Optimizer& optimizer) noexcept {
  return std::visit(
      [](const auto& options) {
        if (options.gradient_accumulation_steps > 0) return false;  // TensorFlow adds them up, too
        if (options.clipnorm > 0 || options.clipvalue > 0 || options.global_clipnorm > 0) return true;
        return !requires { TraitsOf<decltype(options)>::is_additive; };
      },
      optimizer);
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

SharedUpdate shared_update(const Optimizer& optimizer, std::uint64_t iteration) noexcept {
  return std::visit(
      [iteration](const auto& options) {
        const int steps = options.gradient_accumulation_steps;
        const std::uint64_t changes = changes_before(steps, iteration);
        const auto frequency = static_cast<std::uint64_t>(options.ema_overwrite_frequency);
        SharedUpdate shared{.accumulated_steps = steps,
                            .changes_weights = steps == 0 || iteration % static_cast<std::uint64_t>(steps) == 0,
                            .averages = options.use_ema,
                            .average_momentum = changes == 0 ? 0.0F : static_cast<float>(options.ema_momentum),
                            .overwrites = options.use_ema && frequency > 0 && (changes + 1) % frequency == 0};
        if constexpr (!requires { TraitsOf<decltype(options)>::decays_weights; }) {
          shared.decay = static_cast<float>(options.learning_rate.at(iteration - 1) * options.weight_decay);
        }
        return shared;
      },
      optimizer);
}

Slots slots_of(const Optimizer& optimizer) {
  return std::visit(
      [](const auto& options) {
        Slots all;
        if (options.use_ema) all.push_back({"average"});
        if (options.gradient_accumulation_steps > 0) all.push_back({"gradient_accumulator"});
        const Slots own = TraitsOf<decltype(options)>::slots(options);
        all.insert(all.end(), own.begin(), own.end());
        return all;
      },
      optimizer);
}

std::optional<float> last_variable(const Optimizer& optimizer, std::int64_t iteration) noexcept {
  return std::visit(
      [iteration](const auto& options) -> std::optional<float> {
        if constexpr (requires { TraitsOf<decltype(options)>::last_variable(options, 0.0); }) {
          const std::uint64_t changes =
              changes_before(options.gradient_accumulation_steps, static_cast<std::uint64_t>(iteration) + 1);
          return static_cast<float>(TraitsOf<decltype(options)>::last_variable(options, static_cast<double>(changes)));
        } else {
          return std::nullopt;
        }
      },
      optimizer);
}

int num_slots(const Optimizer& optimizer) { return static_cast<int>(slots_of(optimizer).size()); }

std::size_t slot_index(const Slots& slots, std::size_t slot, std::size_t weight, std::size_t weights) noexcept {
  std::size_t first = slot;  // of the slots that stand together with it
  while (slots[first].is_interleaved) --first;
  std::size_t end = slot + 1;
  while (end < slots.size() && slots[end].is_interleaved) ++end;
  return first * weights + weight * (end - first) + (slot - first);
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
