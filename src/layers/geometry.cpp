// Padding by Keras' names.
#include "layers/named_choice.hpp"

#include <lockstep/layers/geometry.hpp>

#include <array>
#include <string_view>

namespace lockstep {

Padding::Padding(const char* name)
    : Padding(named_choice("padding", name, std::array{valid, same, causal}, keras_name)) {}

std::string_view keras_name(Padding padding) noexcept {
  switch (padding.kind) {
    case Padding::Kind::valid: break;
    case Padding::Kind::same: return "same";
    case Padding::Kind::causal: return "causal";
  }
  return "valid";
}

}  // namespace lockstep
