// See find_mistakes.hpp.
#include "session/find_mistakes.hpp"

#include "losses/loss_registry.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t most_shown = 24;
constexpr std::int64_t shortest_side = 4;
constexpr std::int64_t longest_side = 256;

bool is_classifier(const CompiledModel& model) {
  if (model.outputs.size() != 1) return false;
  const Loss& loss = model.outputs.front().loss;
  const Shape& output = model.architecture.output_shape();
  return (takes_classes(loss) || takes_one_hot(loss)) && output.rank() == 1 && output.elements() > 1;
}

/// An empty picture of the size that an input has; none if it is no picture.
std::optional<Picture> picture_like(const InputArray& input) {
  const Shape& shape = input.shape;
  if (shape.rank() != 3 && !(shape.rank() == 2 && holds_bytes(input))) return std::nullopt;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    if (shape[axis] < shortest_side || shape[axis] > longest_side) return std::nullopt;
  }
  const std::int64_t channels = shape.rank() == 3 ? shape[2] : 1;
  if (channels != 1 && channels != 3) return std::nullopt;
  return Picture{.height = static_cast<std::size_t>(shape[0]),
                 .width = static_cast<std::size_t>(shape[1]),
                 .channels = static_cast<std::size_t>(channels),
                 .values = {}};
}

std::vector<std::uint8_t> pixels_of(const SharedArray<std::uint8_t>& values) { return {values.begin(), values.end()}; }

/// From black, the smallest value, to white.
std::vector<std::uint8_t> pixels_of(const SharedArray<float>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  const float scale = most > least ? 255.0F / (most - least) : 0.0F;
  std::vector<std::uint8_t> pixels;
  pixels.reserve(values.size());
  for (const float value : values) pixels.push_back(static_cast<std::uint8_t>((value - least) * scale));
  return pixels;
}

std::size_t index_of_largest(std::span<const float> values) {
  return static_cast<std::size_t>(std::distance(values.begin(), std::ranges::max_element(values)));
}

std::size_t class_of(const TargetArray& target, std::size_t example, std::size_t classes) {
  if (const auto* const indices = std::get_if<SharedArray<std::int32_t>>(&target.values))
    return static_cast<std::size_t>((*indices)[example]);
  const auto& values = std::get<SharedArray<float>>(target.values);
  return index_of_largest({values.data() + example * classes, classes});
}

/// The chief's answer: ranks that compute other last bits must not compare other numbers of batches. Collective.
bool has_enough(const CompiledModel& model, const Mistakes& mistakes) {
  const bool is_enough = mistakes.shown.size() >= most_shown || model.run_context.options().model_dir.empty();
  std::array<std::byte, 1> enough{is_enough ? std::byte{1} : std::byte{0}};
  model.run_context.control().broadcast(enough, 0);
  return enough[0] != std::byte{0};
}

}  // namespace

Mistakes find_mistakes(CompiledModel& model, const Dataset& data, std::size_t batch_size) {
  Mistakes mistakes;
  if (!is_classifier(model) || data.inputs.size() != 1) return mistakes;
  std::optional<Picture> picture = picture_like(data.input());
  if (!picture) return mistakes;
  const auto classes = static_cast<std::size_t>(model.architecture.output_shape().elements());
  const std::size_t elements = picture->height * picture->width * picture->channels;
  const std::size_t end = std::min(data.size(), std::max(batch_size, data.size() / 10));
  for (std::size_t begin = 0; begin < end && !has_enough(model, mistakes); begin += batch_size) {
    const Dataset part = data.slice(begin, std::min(begin + batch_size, end));
    const std::vector<float> outputs = model.predict(part, batch_size).front();
    for (std::size_t i = 0; i < part.size() && mistakes.shown.size() < most_shown; ++i) {
      ++mistakes.examined;
      const std::size_t predicted = index_of_largest(std::span(outputs).subspan(i * classes, classes));
      const std::size_t expected = class_of(part.target(), i, classes);
      if (predicted == expected) continue;
      picture->values =
          std::visit([&](const auto& values) { return pixels_of(values.slice(i * elements, (i + 1) * elements)); },
                     part.input().values);
      mistakes.shown.push_back({*picture, expected, predicted});
    }
  }
  return mistakes;
}

}  // namespace lockstep
