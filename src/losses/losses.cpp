// See losses.hpp.
#include <lockstep/losses/losses.hpp>

#include "core/fields.hpp"
#include "losses/loss_registry.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace lockstep {

std::string_view keras_name(const Loss& loss) noexcept {
  return std::visit([]<typename T>(const T& /*loss*/) { return LossTraits<T>::function_name; }, loss);
}

void check(const Loss& loss) {
  const NumberRangeCheck range_check("the loss " + std::string(keras_name(loss)) + "'s ");
  std::visit([&]<typename T>(const T& options) { LossTraits<T>::fields(range_check, options); }, loss);
}

bool takes_classes(const Loss& loss) noexcept {
  return std::visit([]<typename T>(const T& /*loss*/) { return LossTraits<T>::takes_classes; }, loss);
}

std::optional<ActivationFunction> logits_activation_of(const Loss& loss) noexcept {
  return std::visit(
      []<typename T>(const T& /*loss*/) -> std::optional<ActivationFunction> {
        if constexpr (requires { LossTraits<T>::probabilities_of; }) return LossTraits<T>::probabilities_of;
        return std::nullopt;
      },
      loss);
}

Loss from_logits(Loss loss) {
  std::visit(
      []<typename T>(T& options) {
        if constexpr (requires { options.from_logits; }) options.from_logits = true;
      },
      loss);
  return loss;
}

bool needs_class_vector(const Loss& loss) noexcept {
  return std::visit([]<typename T>(const T& /*loss*/) { return LossTraits<T>::needs_class_vector; }, loss);
}

}  // namespace lockstep
