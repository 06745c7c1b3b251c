// Padding and interpolation by Keras' names.
#include "layers/named_choice.hpp"

#include <lockstep/layers/geometry.hpp>

#include <array>

namespace lockstep {

Padding::Padding(const char* name)
    : Padding(named_choice("padding", name, std::array<Padding, 2>{valid, same},
                           [](Padding padding) { return padding == same ? "same" : "valid"; })) {}

Interpolation::Interpolation(const char* name)
    : Interpolation(named_choice(
          "interpolation", name, std::array<Interpolation, 2>{nearest, bilinear},
          [](Interpolation interpolation) { return interpolation == nearest ? "nearest" : "bilinear"; })) {}

}  // namespace lockstep
