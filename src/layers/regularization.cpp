// The masks of layers that drop elements.
#include "layers/regularization.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <cstddef>
#include <type_traits>
#include <variant>

namespace lockstep {

void LayerTraits<Dropout>::infer(const Dropout& dropout, ShapeInference& shapes) {
  const Shape& noise = dropout.noise_shape;
  bool fits = noise.rank() == 0 || noise.rank() == shapes.input().rank();
  for (std::size_t axis = 0; fits && axis < noise.rank(); ++axis) {
    fits = noise[axis] == 1 || noise[axis] == shapes.input()[axis];
  }
  if (!fits) {
    shapes.fail(fmt::format("has the noise_shape {}, but each of its axes must be 1 or that of the input {}",
                            noise.to_string_with_batch(), shapes.input().to_string()));
  }
  shapes.set_output(shapes.input());
}

DropRule drop_rule(const Layer& layer, const Shape& input) {
  return std::visit(
      [&input]<typename L>(const L& any) -> DropRule {
        if constexpr (std::is_same_v<L, Dropout>) {
          return {static_cast<float>(any.rate), any.noise_shape};
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
