// Padding by Keras' names.
#include "layers/named_choice.hpp"

#include <lockstep/layers/geometry.hpp>

#include <array>

namespace lockstep {

Padding::Padding(const char* name)
    : Padding(named_choice("padding", name, std::array<Padding, 2>{valid, same},
                           [](Padding padding) { return padding == same ? "same" : "valid"; })) {}

}  // namespace lockstep
