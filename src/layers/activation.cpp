// Activation functions by Keras' names.
#include "layers/activation_functions.hpp"
#include "layers/named_choice.hpp"

namespace lockstep {

std::string_view keras_alias(ActivationFunction function) noexcept {
  std::string_view name;
  visit_activation(function.kind, [&](auto row) { name = decltype(row)::keras_alias; });
  return name;
}

ActivationFunction::ActivationFunction(const char* name)
    : ActivationFunction(named_choice("activation", name, named_activations(),
                                      [](ActivationFunction function) { return keras_name(function); })) {}

std::string_view keras_name(ActivationFunction function) noexcept {
  std::string_view name = "unknown";
  visit_activation(function.kind, [&](auto row) { name = decltype(row)::keras_name; });
  return name;
}

}  // namespace lockstep
