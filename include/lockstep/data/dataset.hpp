// A data set as it lies in memory: examples back to back, bytes left as bytes until a step gathers them.
#pragma once

#include <lockstep/core/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

/// `size()` examples in row-major order. Bytes are pixels (a step divides them by 255), floats are taken as they are.
struct Dataset {
  Shape example_shape;                                                  ///< one input, e.g. {28, 28}
  std::variant<std::vector<std::uint8_t>, std::vector<float>> inputs;   ///< size() x example_shape
  Shape target_shape;                                                   ///< one target; {} for a class index
  std::variant<std::vector<std::int32_t>, std::vector<float>> targets;  ///< class indices, or size() x target_shape
  std::string source;                                                   ///< where it came from, for messages

  [[nodiscard]] std::size_t size() const;

  /// The examples [begin, end) as a data set of their own.
  [[nodiscard]] Dataset slice(std::size_t begin, std::size_t end) const;

  /// Throws DataError unless inputs, targets and shapes agree, and class indices lie in [0, classes).
  void check(std::int64_t classes) const;
};

}  // namespace lockstep
