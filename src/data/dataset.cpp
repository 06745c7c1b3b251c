// Size, slices and the consistency of a data set in memory.
#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

// The elements that one example of `shape` takes; 0 where an extent is not positive or the product overflows.
std::size_t example_elements(const Shape& shape) {
  std::size_t elements = 1;
  for (const std::int64_t extent : shape.extents()) {
    if (extent <= 0) return 0;
    const auto factor = static_cast<std::size_t>(extent);
    if (elements > std::numeric_limits<std::size_t>::max() / factor) return 0;
    elements *= factor;
  }
  return elements;
}

template <typename... Elements>
std::size_t length(const std::variant<std::vector<Elements>...>& values) {
  return std::visit([](const auto& vector) { return vector.size(); }, values);
}

template <typename... Elements>
std::variant<std::vector<Elements>...> cut(const std::variant<std::vector<Elements>...>& values, std::size_t begin,
                                           std::size_t end) {
  return std::visit(
      [&](const auto& vector) -> std::variant<std::vector<Elements>...> {
        using Vector = std::decay_t<decltype(vector)>;
        return Vector(vector.begin() + static_cast<std::ptrdiff_t>(begin),
                      vector.begin() + static_cast<std::ptrdiff_t>(end));
      },
      values);
}

}  // namespace

std::size_t Dataset::size() const {
  const std::size_t elements = example_elements(example_shape);
  return elements == 0 ? 0 : length(inputs) / elements;
}

Dataset Dataset::slice(std::size_t begin, std::size_t end) const {
  if (begin > end || end > size()) {
    throw UsageError("The slice [" + std::to_string(begin) + ", " + std::to_string(end) + ") of " + source +
                     " does not exist: it has " + std::to_string(size()) + " examples; ask for a part of these.");
  }
  const std::size_t input_elements = example_elements(example_shape);
  const std::size_t target_elements = example_elements(target_shape);
  if (length(targets) != size() * target_elements) {
    throw DataError("The targets of " + source + " do not match its " + std::to_string(size()) +
                    " examples, so it cannot be sliced; give one target an example.");
  }
  return {example_shape, cut(inputs, begin * input_elements, end * input_elements), target_shape,
          cut(targets, begin * target_elements, end * target_elements), source};
}

void Dataset::check(std::int64_t classes) const {
  const std::size_t input_elements = example_elements(example_shape);
  const std::size_t target_elements = example_elements(target_shape);
  if (input_elements == 0 || target_elements == 0) {
    throw DataError("The shapes of " + source + " (examples " + example_shape.to_string() + ", targets " +
                    target_shape.to_string() + ") need extents of at least 1; correct them.");
  }
  if (length(inputs) % input_elements != 0) {
    throw DataError("The inputs of " + source + " hold " + std::to_string(length(inputs)) +
                    " values, which is not a multiple of the " + std::to_string(input_elements) +
                    " values of one example " + example_shape.to_string() + "; correct the shape or the inputs.");
  }
  if (size() == 0) throw DataError("The data set " + source + " holds no example; give it at least one.");
  if (length(targets) / target_elements != size() || length(targets) % target_elements != 0) {
    throw DataError("The targets of " + source + " hold " + std::to_string(length(targets)) + " values where its " +
                    std::to_string(size()) + " examples need " + std::to_string(target_elements) +
                    " each; give one target an example.");
  }
  const auto* indices = std::get_if<std::vector<std::int32_t>>(&targets);
  if (indices == nullptr) return;
  const auto wrong =
      std::find_if(indices->begin(), indices->end(), [=](std::int32_t i) { return i < 0 || i >= classes; });
  if (wrong != indices->end()) {
    throw DataError("Target " + std::to_string(wrong - indices->begin()) + " of " + source + " is class " +
                    std::to_string(*wrong) + ", but the model knows classes 0 to " + std::to_string(classes - 1) +
                    "; correct the label, or give the model's last layer more units.");
  }
}

}  // namespace lockstep
