// Normal numbers are computed in double precision: rounding to float hides differences in the last bits of libm.
#include "core/random.hpp"

#include <cmath>
#include <numbers>

namespace lockstep {

float RandomStream::normal() noexcept {
  const double radius_word = (static_cast<double>(next()) + 1.0) * 0x1.0p-32;  // in (0, 1]: the logarithm is finite
  const double angle_word = static_cast<double>(next()) * 0x1.0p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(radius_word)) * std::cos(2.0 * std::numbers::pi * angle_word));
}

}  // namespace lockstep
