// Shapes of encoded indices.
#include "layers/embedding.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

namespace lockstep {

void infer_encoding(OutputMode mode, std::int64_t depth, ShapeInference& shapes) {
  std::vector<std::int64_t> extents(shapes.input().extents().begin(), shapes.input().extents().end());
  switch (mode) {
    case OutputMode::integer: break;
    case OutputMode::one_hot:
      if (!extents.empty() && extents.back() == 1) extents.pop_back();
      extents.push_back(depth);
      break;
    case OutputMode::multi_hot:
    case OutputMode::count:
      if (extents.size() != 1) {
        shapes.fail(
            fmt::format("has output_mode {} and the input {}, but Lockstep encodes one vector of indices per "
                        "example so; use one_hot, or put a Flatten before it",
                        enum_name(mode), shapes.input().to_string()));
      }
      extents = {depth};
      break;
  }
  shapes.set_output(Shape(std::move(extents)));
}

void LayerTraits<CategoryEncoding>::infer(const CategoryEncoding& encoding, ShapeInference& shapes) {
  if (encoding.output_mode == OutputMode::integer) {
    shapes.fail("has output_mode int, but it must be one_hot, multi_hot or count");
  }
  infer_encoding(encoding.output_mode, encoding.num_tokens, shapes);
}

void LayerTraits<Discretization>::infer(const Discretization& layer, ShapeInference& shapes) {
  const std::vector<double>& boundaries = layer.bin_boundaries;
  const bool are_finite = std::ranges::all_of(boundaries, [](double boundary) { return std::isfinite(boundary); });
  if (boundaries.empty() || !are_finite || !std::ranges::is_sorted(boundaries, std::less_equal{})) {
    shapes.fail("needs one or more bin_boundaries, finite and increasing");
  }
  infer_encoding(layer.output_mode, static_cast<std::int64_t>(boundaries.size()) + 1, shapes);
}

}  // namespace lockstep
