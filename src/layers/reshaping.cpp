// Shapes of Reshape, Permute, and of layers that pad or crop.
#include "layers/reshaping.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
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

Margins2D added_margins(const Layer& layer, std::int64_t height, std::int64_t width) {
  return std::visit(
      [height, width]<typename L>(const L& any) -> Margins2D {
        if constexpr (std::is_same_v<L, ZeroPadding2D>) {
          return any.padding;
        } else if constexpr (std::is_same_v<L, ZeroPadding1D>) {
          return {0, 0, any.padding.before, any.padding.after};
        } else if constexpr (std::is_same_v<L, Cropping2D>) {
          const Margins2D& cut = any.cropping;
          return {-cut.top, -cut.bottom, -cut.left, -cut.right};
        } else if constexpr (std::is_same_v<L, Cropping1D>) {
          return {0, 0, -any.cropping.before, -any.cropping.after};
        } else if constexpr (std::is_same_v<L, CenterCrop>) {
          const auto rows = static_cast<int>(height) - any.height;  // of an odd number, the last half is larger
          const auto columns = static_cast<int>(width) - any.width;
          return {-(rows / 2), rows / 2 - rows, -(columns / 2), columns / 2 - columns};
        } else {
          throw InternalError("a padding was lowered from a layer without margins; please report this");
        }
      },
      layer);
}

void infer_margins(const Layer& layer, bool is_image, ShapeInference& shapes) {
  if (is_image) {
    shapes.need_image();
  } else {
    shapes.need_rank(2, "(steps, channels)");
  }
  const Shape& input = shapes.input();
  const std::int64_t rows = is_image ? input[0] : 1;
  const std::int64_t columns = input[is_image ? 1 : 0];
  const Margins2D margins = added_margins(layer, rows, columns);
  const std::int64_t height = rows + margins.top + margins.bottom;
  const std::int64_t width = columns + margins.left + margins.right;
  if (height < 1 || width < 1) {
    shapes.fail("would crop all of its input " + input.to_string() + "; it must leave at least one pixel");
  }
  shapes.set_output(is_image ? Shape{height, width, input[2]} : Shape{width, input[1]});
}

void LayerTraits<CenterCrop>::infer(const CenterCrop& crop, ShapeInference& shapes) {
  shapes.need_image();
  const Shape& input = shapes.input();
  if (crop.height > input[0] || crop.width > input[1]) {
    shapes.fail(fmt::format(
        "has height {} and width {}, but its input {} is smaller; crop less, or use a Resizing, as Keras would do here",
        crop.height, crop.width, input.to_string()));
  }
  shapes.set_output(Shape{crop.height, crop.width, input[2]});
}

void LayerTraits<Permute>::infer(const Permute& permute, ShapeInference& shapes) {
  const Shape& input = shapes.input();
  std::vector<bool> used(input.rank(), false);
  std::vector<std::int64_t> extents;
  for (const int axis : permute.dims) {
    const auto index = static_cast<std::size_t>(axis - 1);
    if (axis < 1 || index >= used.size() || used[index]) break;
    used[index] = true;
    extents.push_back(input[index]);
  }
  if (extents.size() != input.rank() || permute.dims.size() != input.rank()) {
    shapes.fail(fmt::format("has dims [{}], but its input {} needs each axis from 1 to {} once",
                            fmt::join(permute.dims, ", "), input.to_string(), input.rank()));
  }
  shapes.set_output(Shape(std::move(extents)));
}

}  // namespace lockstep
