// Shapes of merges.
#include "layers/merging.hpp"

#include <fmt/format.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

Shape broadcast_shape(const ShapeInference& shapes) {
  std::vector<std::int64_t> extents(shapes.input().extents().begin(), shapes.input().extents().end());
  for (const Shape& other : shapes.inputs()) {
    bool fits = other.rank() == extents.size();
    for (std::size_t axis = 0; fits && axis < extents.size(); ++axis) {
      if (extents[axis] == 1) extents[axis] = other[axis];
      fits = other[axis] == extents[axis] || other[axis] == 1;
    }
    if (fits) continue;
    shapes.fail(fmt::format("merges {} with {}; along each axis its inputs must have one size, or 1",
                            shapes.input().to_string(), other.to_string()));
  }
  return Shape(std::move(extents));
}

void LayerTraits<Concatenate>::infer(const Concatenate& merge, ShapeInference& shapes) {
  shapes.need_inputs(2);
  const auto rank = static_cast<int>(shapes.input().rank());
  if (merge.axis == 0 || merge.axis < -rank || merge.axis > rank) {
    shapes.fail(fmt::format("has axis {}, but its input {} has the axes 1 to {}, or -{} to -1", merge.axis,
                            shapes.input().to_string(), rank, rank));
  }
  const std::size_t axis = example_axis(merge.axis, shapes.input().rank());
  std::vector<std::int64_t> extents(shapes.input().extents().begin(), shapes.input().extents().end());
  extents[axis] = 0;
  for (const Shape& other : shapes.inputs()) {
    bool fits = other.rank() == extents.size();
    for (std::size_t i = 0; fits && i < extents.size(); ++i) fits = i == axis || other[i] == extents[i];
    if (!fits) {
      shapes.fail(fmt::format("concatenates {} and {} along axis {}, but they differ along other axes",
                              shapes.input().to_string(), other.to_string(), merge.axis));
    }
    extents[axis] += other[axis];
  }
  shapes.set_output(Shape(std::move(extents)));
}

void LayerTraits<Dot>::infer(const Dot& dot, ShapeInference& shapes) {
  shapes.need_inputs(2, 2);
  std::array<std::int64_t, 2> summed{};
  std::vector<std::int64_t> extents;
  for (const std::size_t input : {0, 1}) {
    const Shape& shape = shapes.inputs()[input];
    const int axis = input == 0 ? dot.axes.first : dot.axes.second;
    const auto rank = static_cast<int>(shape.rank());
    if (axis == 0 || axis < -rank || axis > rank) {
      shapes.fail(fmt::format("has axis {}, but its input {} has the axes 1 to {}, or -{} to -1", axis,
                              shape.to_string(), rank, rank));
    }
    const std::size_t along = example_axis(axis, shape.rank());
    summed[input] = shape[along];
    for (std::size_t i = 0; i < shape.rank(); ++i) {
      if (i != along) extents.push_back(shape[i]);
    }
  }
  if (summed[0] != summed[1]) {
    shapes.fail(fmt::format("multiplies {} along axis {} with {} along axis {}, but these axes have {} and {} elements",
                            shapes.inputs()[0].to_string(), dot.axes.first, shapes.inputs()[1].to_string(),
                            dot.axes.second, summed[0], summed[1]));
  }
  if (extents.empty()) extents.push_back(1);
  shapes.set_output(Shape(std::move(extents)));
}

}  // namespace lockstep
