// Padding and interpolation by Keras' names.
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

Interpolation::Interpolation(const char* name)
    : Interpolation(named_choice(
          "interpolation", name, std::array<Interpolation, 2>{nearest, bilinear},
          [](Interpolation interpolation) { return interpolation == nearest ? "nearest" : "bilinear"; })) {}

}  // namespace lockstep
