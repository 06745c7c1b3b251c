// See lockstep/core/shape.hpp. Shapes print as Python and Keras print tuples.
#include <lockstep/core/shape.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace lockstep {

std::int64_t Shape::elements() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents_) product *= extent;
  return product;
}

std::string Shape::to_string() const {
  return fmt::format("({}{})", fmt::join(extents_, ", "), extents_.size() == 1 ? "," : "");
}

std::string Shape::to_string_with_batch() const {
  if (extents_.empty()) return "(None,)";
  return fmt::format("(None, {})", fmt::join(extents_, ", "));
}

}  // namespace lockstep
