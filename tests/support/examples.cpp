// See examples.hpp.
#include "support/examples.hpp"

#include "core/random.hpp"
#include "graph/input_numbers.hpp"

#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <variant>
#include <vector>

namespace lockstep::testing {
namespace {

std::vector<float> uniform(std::size_t count, RandomStream& random) {
  std::vector<float> values(count);
  for (float& value : values) value = 2 * random.uniform() - 1;
  return values;
}

reference::Values rows_of(const reference::Values& all, std::size_t width, std::span<const std::uint32_t> examples) {
  reference::Values rows;
  for (const std::uint32_t example : examples) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(example * width);
    rows.insert(rows.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  return rows;
}

}  // namespace

reference::Values Examples::inputs_of(std::span<const std::uint32_t> examples) const {
  return rows_of(inputs, input_width, examples);
}

reference::Values Examples::targets_of(std::span<const std::uint32_t> examples) const {
  return rows_of(targets, target_width, examples);
}

Examples make_examples(const Architecture& model, const Loss& loss, std::size_t count, std::uint64_t seed,
                       Pixels pixels) {
  RandomStream random(seed, RandomPurpose::test, 0);
  Examples examples;
  examples.data.source = "random numbers";
  std::vector<reference::Values> read;  // by input of the model, as a step converts them
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const LayerInfo& layer = model.input_layer(i);
    InputArray& input = examples.data.inputs.emplace_back();
    if (model.inputs().size() > 1) input.name = layer.name;
    input.shape = layer.output_shape;
    const std::size_t elements = count * static_cast<std::size_t>(input.shape.elements());
    if (pixels == Pixels::bytes) {
      const double scale = byte_scale_of(model.flattened(), i);
      std::vector<std::uint8_t> bytes(elements);
      reference::Values& values = read.emplace_back();
      for (std::uint8_t& byte : bytes) {
        byte = static_cast<std::uint8_t>(random.below(256));
        values.push_back(static_cast<float>(byte * scale));
      }
      input.values = std::move(bytes);
    } else {
      std::vector<float> floats = uniform(elements, random);
      read.emplace_back(floats.begin(), floats.end());
      input.values = std::move(floats);
    }
  }
  for (std::size_t example = 0; example < count; ++example) {
    for (const reference::Values& values : read) {
      const auto width = static_cast<std::ptrdiff_t>(values.size() / count);
      const auto row = values.begin() + static_cast<std::ptrdiff_t>(example) * width;
      examples.inputs.insert(examples.inputs.end(), row, row + width);
    }
  }
  examples.input_width = examples.inputs.size() / count;

  TargetArray& target = examples.data.targets.emplace_back();
  const auto outputs = static_cast<std::uint32_t>(model.output_shape().elements());
  const auto last_axis = static_cast<std::uint32_t>(model.output_shape().extents().back());
  if (std::holds_alternative<SparseCategoricalCrossentropy>(loss)) {
    examples.target_width = outputs / last_axis;
    std::vector<std::int32_t> classes(count * examples.target_width);
    for (std::int32_t& one : classes) one = static_cast<std::int32_t>(random.below(last_axis));
    const std::span<const std::int64_t> axes = model.output_shape().extents();
    target.shape = Shape(std::vector<std::int64_t>(axes.begin(), axes.end() - 1));
    examples.targets.assign(classes.begin(), classes.end());
    target.values = std::move(classes);
    return examples;
  }
  examples.target_width = outputs;
  target.shape = model.output_shape();
  std::vector<float> targets = uniform(count * outputs, random);
  if (std::holds_alternative<Hinge>(loss) || std::holds_alternative<SquaredHinge>(loss)) {
    for (float& one : targets) one = one < 0 ? 0 : 1;
  } else if (!std::holds_alternative<MeanSquaredError>(loss)) {
    for (std::size_t row = 0; row < targets.size(); row += last_axis) {
      float sum = 0;
      for (std::size_t i = row; i < row + last_axis; ++i) sum += targets[i] = (targets[i] + 1) / 2;
      for (std::size_t i = row; i < row + last_axis; ++i) targets[i] /= sum;
    }
  }
  examples.targets.assign(targets.begin(), targets.end());
  target.values = std::move(targets);
  return examples;
}

double norm(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(std::span<const float> found, std::span<const double> expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (std::size_t i = 0; i < found.size(); ++i) sum += (found[i] - expected[i]) * (found[i] - expected[i]);
  return std::sqrt(sum);
}

double relative_error(std::span<const float> found, std::span<const double> expected) {
  return distance(found, expected) / std::max(norm(expected), std::numeric_limits<double>::min());
}

}  // namespace lockstep::testing
