// See lockstep/data/dataset.hpp.
#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>

namespace lockstep {

namespace {

/// Elements of one example; 0 if a dimension is not positive or the product overflows.
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
std::size_t length(const std::variant<SharedArray<Elements>...>& values) {
  return std::visit([](const auto& array) { return array.size(); }, values);
}

template <typename... Elements>
std::variant<SharedArray<Elements>...> cut(const std::variant<SharedArray<Elements>...>& values, std::size_t begin,
                                           std::size_t end) {
  return std::visit(
      [&](const auto& array) -> std::variant<SharedArray<Elements>...> { return array.slice(begin, end); }, values);
}

void require_finite(const SharedArray<float>& values, std::size_t elements, const char* what,
                    const std::string& source) {
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  const auto index = static_cast<std::size_t>(bad - values.begin());
  throw DataError(fmt::format("{} {} of {} is {} (value {} of that example); replace it, or leave the example out",
                              what, index / elements, source, std::isnan(*bad) ? "NaN" : "infinite", index % elements));
}

}  // namespace

std::uint64_t DatasetId::next() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::size_t Dataset::size() const {
  const std::size_t elements = example_elements(example_shape);
  return elements == 0 ? 0 : length(inputs) / elements;
}

Dataset Dataset::slice(std::size_t begin, std::size_t end) const {
  if (begin > end || end > size()) {
    throw UsageError(
        fmt::format("the slice [{}, {}) of {} is out of range: the dataset has {} examples; choose a slice "
                    "within them",
                    begin, end, source, size()));
  }
  const std::size_t input_elements = example_elements(example_shape);
  const std::size_t target_elements = example_elements(target_shape);
  if (length(targets) != size() * target_elements || (!sample_weights.empty() && sample_weights.size() != size())) {
    throw DataError(
        fmt::format("the targets or sample weights of {} do not match its {} examples, so it cannot be sliced; "
                    "give one of each per example",
                    source, size()));
  }
  return {example_shape,
          cut(inputs, begin * input_elements, end * input_elements),
          target_shape,
          cut(targets, begin * target_elements, end * target_elements),
          source,
          {},
          sample_weights.empty() ? sample_weights : sample_weights.slice(begin, end)};
}

void Dataset::validate_inputs() const {
  const auto* floats = std::get_if<SharedArray<float>>(&inputs);
  if (floats != nullptr) require_finite(*floats, example_elements(example_shape), "input", source);
}

void Dataset::validate(std::int64_t classes) const {
  const std::size_t input_elements = example_elements(example_shape);
  const std::size_t target_elements = example_elements(target_shape);
  if (input_elements == 0 || target_elements == 0) {
    throw DataError(
        fmt::format("the shapes of {} (examples {}, targets {}) need dimensions of at least 1; correct them", source,
                    example_shape.to_string(), target_shape.to_string()));
  }
  if (length(inputs) % input_elements != 0) {
    throw DataError(
        fmt::format("the inputs of {} hold {} values, which is not a multiple of the {} values of one "
                    "example {}; correct the shape or the inputs",
                    source, length(inputs), input_elements, example_shape.to_string()));
  }
  if (size() == 0) throw DataError(fmt::format("the dataset {} holds no example; give it at least one", source));
  if (length(targets) / target_elements != size() || length(targets) % target_elements != 0) {
    throw DataError(
        fmt::format("the targets of {} hold {} values where its {} examples need {} each; give one target "
                    "per example",
                    source, length(targets), size(), target_elements));
  }
  validate_inputs();
  if (const auto* floats = std::get_if<SharedArray<float>>(&targets)) {
    require_finite(*floats, target_elements, "target", source);
  }
  if (!sample_weights.empty() && sample_weights.size() != size()) {
    throw DataError(fmt::format("{} has {} sample weights for {} examples; give one for each example, or none", source,
                                sample_weights.size(), size()));
  }
  require_finite(sample_weights, 1, "the sample weight", source);
  const auto* indices = std::get_if<SharedArray<std::int32_t>>(&targets);
  if (indices == nullptr) return;
  const auto wrong =
      std::find_if(indices->begin(), indices->end(), [=](std::int32_t i) { return i < 0 || i >= classes; });
  if (wrong == indices->end()) return;
  const auto [least, most] = std::ranges::minmax(*indices);
  const char* remedy = "correct the label, or give the model's last layer more units";
  if (least == 1 && most == classes) remedy = "subtract 1 from the labels, which count from 1";
  if (least < 0) remedy = "correct the label";
  throw DataError(fmt::format("target {} of {} is class {}, but the model has classes 0 to {}; {}",
                              wrong - indices->begin(), source, *wrong, classes - 1, remedy));
}

}  // namespace lockstep
