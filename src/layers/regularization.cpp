// The masks of layers that drop elements.
#include "layers/regularization.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <variant>

namespace lockstep {

namespace {

/// Selu's limit is -alpha scale. The affine map keeps mean 0 and variance 1 of an input that has them.
DropRule alpha_drop_rule(const AlphaDropout& dropout) {
  constexpr double limit = -1.6732632423543772 * 1.0507009873554805;
  const double rate = dropout.rate;
  const double scale = 1 / std::sqrt((1 - rate) * (1 + rate * limit * limit));
  const double shift = -scale * limit * rate;
  return {.rate = static_cast<float>(rate),
          .noise_shape = dropout.noise_shape,
          .scale = static_cast<float>(scale),
          .shift = static_cast<float>(shift),
          .dropped = static_cast<float>(scale * limit + shift)};
}

}  // namespace

void check_noise_shape(const Shape& noise, const ShapeInference& shapes) {
  bool fits = noise.rank() == 0 || noise.rank() == shapes.input().rank();
  for (std::size_t axis = 0; fits && axis < noise.rank(); ++axis) {
    fits = noise[axis] == 1 || noise[axis] == shapes.input()[axis];
  }
  if (!fits) {
    shapes.fail(fmt::format("has the noise_shape {}, but each of its axes must be 1 or that of the input {}",
                            noise.to_string_with_batch(), shapes.input().to_string()));
  }
}

DropRule drop_rule(const Layer& layer, const Shape& input) {
  return std::visit(
      [&input]<typename L>(const L& any) -> DropRule {
        if constexpr (std::is_same_v<L, Dropout>) {
          return {static_cast<float>(any.rate), any.noise_shape};
        } else if constexpr (std::is_same_v<L, AlphaDropout>) {
          return alpha_drop_rule(any);
        } else if constexpr (std::is_same_v<L, SpatialDropout2D>) {
          return {static_cast<float>(any.rate), Shape{1, 1, input[2]}};
        } else if constexpr (std::is_same_v<L, SpatialDropout1D>) {
          return {static_cast<float>(any.rate), Shape{1, input[1]}};
        } else {
          throw InternalError("a dropout was lowered from a layer without a rate; please report this");
        }
      },
      layer);
}

}  // namespace lockstep
