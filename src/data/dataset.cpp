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
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

template <typename... Elements>
std::variant<SharedArray<Elements>...> cut(const std::variant<SharedArray<Elements>...>& values, std::size_t begin,
                                           std::size_t end) {
  return std::visit(
      [&](const auto& array) -> std::variant<SharedArray<Elements>...> { return array.slice(begin, end); }, values);
}

template <typename Array>
std::string label(const Array& array, const std::string& source) {
  if (!array.source.empty()) return array.source;
  return array.name.empty() ? source : fmt::format("'{}' of {}", array.name, source);
}

/// Where a value of an array stands: in which example, and there " at (y, x)", or "" if the example is one value.
struct Place {
  std::int64_t example;
  std::string within;
};

Place place_of(std::int64_t index, const Shape& shape) {
  std::vector<std::int64_t> axes(shape.rank());
  for (std::size_t axis = shape.rank(); axis-- > 0; index /= shape[axis]) axes[axis] = index % shape[axis];
  return {index, axes.empty() ? "" : " at " + Shape(std::move(axes)).to_string()};
}

}  // namespace

void require_finite(const SharedArray<float>& values, const Shape& shape, const char* what, const std::string& source) {
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  const Place place = place_of(bad - values.begin(), shape);
  throw DataError(fmt::format("{} of example {} of {} is {}{}; replace it, or leave the example out", what,
                              place.example, source, std::isnan(*bad) ? "NaN" : "infinite in float32", place.within));
}

void require_class_indices(const SharedArray<std::int32_t>& indices, const Shape& shape, std::int64_t classes,
                           const std::string& source) {
  const auto wrong =
      std::find_if(indices.begin(), indices.end(), [=](std::int32_t i) { return i < 0 || i >= classes; });
  if (wrong == indices.end()) return;
  const auto [least, most] = std::ranges::minmax(indices);
  const char* remedy = "correct the label, or give the model's last layer more units";
  if (least == 1 && most == classes) remedy = "subtract 1 from the labels, which count from 1";
  if (least < 0) remedy = "correct the label";
  const Place place = place_of(wrong - indices.begin(), shape);
  throw DataError(fmt::format("target {} of {} is class {}{}, but the model has classes 0 to {}; {}", place.example,
                              source, *wrong, place.within, classes - 1, remedy));
}

std::uint64_t DatasetId::next() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::size_t elements_of_example(const Shape& shape) {
  std::size_t elements = 1;
  for (const std::int64_t extent : shape.extents()) {
    if (extent <= 0) return 0;
    const auto factor = static_cast<std::size_t>(extent);
    if (elements > std::numeric_limits<std::size_t>::max() / factor) return 0;
    elements *= factor;
  }
  return elements;
}

Dataset::Dataset(Shape example_shape, InputValues input_values, Shape target_shape, TargetValues target_values,
                 std::string origin)
    : source(std::move(origin)) {
  inputs.push_back({std::move(example_shape), std::move(input_values)});
  targets.push_back({std::move(target_shape), std::move(target_values)});
}

std::string Dataset::label_of(const InputArray& array) const { return label(array, source); }
std::string Dataset::label_of(const TargetArray& array) const { return label(array, source); }

std::size_t Dataset::size() const {
  if (inputs.empty()) return 0;
  const std::size_t elements = elements_of_example(input().shape);
  return elements == 0 ? 0 : num_elements(input().values) / elements;
}

Dataset Dataset::slice(std::size_t begin, std::size_t end) const {
  const std::size_t examples = size();
  if (begin > end || end > examples) {
    throw UsageError(
        fmt::format("the slice [{}, {}) of {} is out of range: the dataset has {} examples; choose a slice "
                    "within them",
                    begin, end, source, examples));
  }
  const auto holds_all = [examples](const auto& array) {
    return num_elements(array.values) == examples * elements_of_example(array.shape);
  };
  if (!std::ranges::all_of(inputs, holds_all)) {
    throw DataError(fmt::format(
        "the inputs of {} have different numbers of examples, so it cannot be sliced; give them equally many", source));
  }
  if (!std::ranges::all_of(targets, holds_all) || (!sample_weights.empty() && sample_weights.size() != examples)) {
    throw DataError(
        fmt::format("the targets or sample weights of {} do not match its {} examples, so it cannot be sliced; "
                    "give one of each per example",
                    source, examples));
  }
  Dataset part = *this;
  const auto cut_array = [&](auto& array) {
    const std::size_t elements = elements_of_example(array.shape);
    array.values = cut(array.values, begin * elements, end * elements);
  };
  std::ranges::for_each(part.inputs, cut_array);
  std::ranges::for_each(part.targets, cut_array);
  if (!sample_weights.empty()) part.sample_weights = sample_weights.slice(begin, end);
  return part;
}

void Dataset::validate_inputs() const {
  for (const InputArray& array : inputs) {
    const std::size_t elements = elements_of_example(array.shape);
    if (elements == 0) {
      throw DataError(
          fmt::format("the examples of {} have the shape {}, but every dimension must be at least 1; correct it",
                      label_of(array), array.shape.to_string()));
    }
    const std::size_t values = num_elements(array.values);
    if (values % elements != 0) {
      throw DataError(
          fmt::format("the inputs of {} hold {} values, which is not a multiple of the {} values of one "
                      "example {}; correct the shape or the inputs",
                      label_of(array), values, elements, array.shape.to_string()));
    }
    if (values / elements != size()) {
      throw DataError(fmt::format("{} has {} examples, but {} has {}; give all inputs equally many", label_of(input()),
                                  size(), label_of(array), values / elements));
    }
    const auto* floats = std::get_if<SharedArray<float>>(&array.values);
    if (floats != nullptr) require_finite(*floats, array.shape, "the input", label_of(array));
  }
}

void Dataset::validate(std::int64_t classes) const { validate(std::vector<std::int64_t>(targets.size(), classes)); }

void Dataset::validate(const std::vector<std::int64_t>& classes) const {
  validate_inputs();
  if (size() == 0) throw DataError(fmt::format("the dataset {} holds no example; give it at least one", source));
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const TargetArray& array = targets[i];
    const std::size_t elements = elements_of_example(array.shape);
    const std::size_t values = num_elements(array.values);
    if (elements == 0) {
      throw DataError(
          fmt::format("the targets of {} have the shape {}, but every dimension must be at least 1; correct it",
                      label_of(array), array.shape.to_string()));
    }
    if (values / elements != size() || values % elements != 0) {
      throw DataError(
          fmt::format("the targets of {} hold {} values where its {} examples need {} each; give one target "
                      "per example",
                      label_of(array), values, size(), elements));
    }
    if (const auto* floats = std::get_if<SharedArray<float>>(&array.values)) {
      require_finite(*floats, array.shape, "the target", label_of(array));
    }
    if (const auto* indices = std::get_if<SharedArray<std::int32_t>>(&array.values)) {
      require_class_indices(*indices, array.shape, classes.at(i), label_of(array));
    }
  }
  if (!sample_weights.empty() && sample_weights.size() != size()) {
    throw DataError(fmt::format("{} has {} sample weights for {} examples; give one for each example, or none", source,
                                sample_weights.size(), size()));
  }
  require_finite(sample_weights, {}, "the sample weight", source);
}

}  // namespace lockstep
