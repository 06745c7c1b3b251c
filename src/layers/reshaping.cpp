// Checks the target shape of a Reshape and computes a dimension of -1.
#include "layers/reshaping.hpp"

#include <fmt/format.h>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

void LayerTraits<Reshape>::infer(const Reshape& reshape, ShapeInference& shapes) {
  const std::string target = reshape.target_shape.to_string();
  std::vector<std::int64_t> extents(reshape.target_shape.extents().begin(), reshape.target_shape.extents().end());
  if (extents.empty()) shapes.fail("needs a target shape of at least one dimension");
  std::int64_t* unknown = nullptr;
  std::int64_t known = 1;
  for (std::int64_t& extent : extents) {
    if (extent == -1) {
      if (unknown != nullptr) shapes.fail("has the target shape " + target + ", but only one dimension may be -1");
      unknown = &extent;
    } else if (extent < 1) {
      shapes.fail("has the target shape " + target + ", but dimensions must be at least 1 (or one of them -1)");
    } else if (__builtin_mul_overflow(known, extent, &known)) {
      shapes.fail("has the target shape " + target + ", which is too large");
    }
  }
  const std::int64_t elements = shapes.input().elements();
  if (unknown != nullptr ? elements % known != 0 : elements != known) {
    shapes.fail(fmt::format("cannot reshape its input {} to {}: the input has {} elements", shapes.input().to_string(),
                            target, elements));
  }
  if (unknown != nullptr) *unknown = elements / known;
  shapes.set_output(Shape(std::move(extents)));
}

}  // namespace lockstep
