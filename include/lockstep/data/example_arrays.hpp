// The arrays of a dataset: for each input of a model, and for each output, one array with a row for every example.
#pragma once

#include <lockstep/core/shape.hpp>
#include <lockstep/data/shared_array.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

namespace lockstep {

/// A step multiplies bytes by a scale of the model's or of --input-scale; floats are used as they are.
using InputValues = std::variant<SharedArray<std::uint8_t>, SharedArray<float>>;

/// Class indices, or dense targets.
using TargetValues = std::variant<SharedArray<std::int32_t>, SharedArray<float>>;

/// What one input of the model reads, row-major.
struct InputArray {
  Shape shape;              ///< of one example, e.g. {28, 28}
  InputValues values;       ///< examples x shape
  std::string name = {};    ///< the Input layer's; empty: arrays have the order of the model's inputs
  std::string source = {};  ///< the origin of this array, for messages; empty: that of the dataset
};

/// What one output of the model is compared with, row-major.
struct TargetArray {
  Shape shape;              ///< of one target; {} for one class index, {height, width} for one of each pixel
  TargetValues values;      ///< examples x shape
  std::string name = {};    ///< the output layer's; empty: arrays have the order of the model's outputs
  std::string source = {};  ///< the origin of this array, for messages; empty: that of the dataset
};

[[nodiscard]] inline bool holds_bytes(const InputArray& array) {
  return std::holds_alternative<SharedArray<std::uint8_t>>(array.values);
}

/// Throws DataError, which names `source`, unless all class indices are in [0, classes). `shape`: of one target.
void require_class_indices(const SharedArray<std::int32_t>& indices, const Shape& shape, std::int64_t classes,
                           const std::string& source);

/// Throws DataError, which names `what` ("the input", "the target") and `source`, for a NaN or infinite value. `shape`:
/// of one example.
void require_finite(const SharedArray<float>& values, const Shape& shape, const char* what, const std::string& source);

/// Elements of one example of this shape; 0 if a dimension is not positive or the product overflows.
[[nodiscard]] std::size_t elements_of_example(const Shape& shape);

/// Elements of all examples.
template <typename... Elements>
[[nodiscard]] std::size_t num_elements(const std::variant<SharedArray<Elements>...>& values) {
  return std::visit([](const auto& array) { return array.size(); }, values);
}

}  // namespace lockstep
