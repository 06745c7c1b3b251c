// Shapes as people read them: the way Python and Keras print a tuple.
#include <lockstep/core/shape.hpp>

#include <cstdint>
#include <string>

namespace lockstep {

std::int64_t Shape::elements() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents_) product *= extent;
  return product;
}

std::string Shape::to_string() const {
  std::string text = "(";
  for (std::size_t axis = 0; axis < extents_.size(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(extents_[axis]);
  }
  return text + (extents_.size() == 1 ? ",)" : ")");
}

std::string Shape::to_string_with_batch() const {
  if (extents_.empty()) return "(None,)";
  std::string text = "(None";
  for (const std::int64_t extent : extents_) text += ", " + std::to_string(extent);
  return text + ")";
}

}  // namespace lockstep
