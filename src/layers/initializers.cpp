// Draws initial values from one counter-based stream per parameter, so that every worker computes the same values
// without communication.
#include "layers/initializers.hpp"

#include "core/random.hpp"
#include "layers/named_choice.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {
namespace {

struct Fans {
  double in = 1;
  double out = 1;
};

/// All dimensions but the last two are a convolution's receptive field.
Fans fans_of(const Shape& shape) {
  const std::size_t rank = shape.rank();
  if (rank == 0) return {};
  if (rank == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double receptive = 1;
  for (std::size_t axis = 0; axis + 2 < rank; ++axis) receptive *= static_cast<double>(shape[axis]);
  return {receptive * static_cast<double>(shape[rank - 2]), receptive * static_cast<double>(shape[rank - 1])};
}

double variance_of(const InitializerRow& row, const Shape& shape) {
  const Fans fans = fans_of(shape);
  return row.scale / std::max(1.0, row.mode == FanMode::fan_in ? fans.in : (fans.in + fans.out) / 2);
}

/// The standard deviation of a standard normal distribution truncated at +-2.
constexpr double truncated_deviation = 0.87962566103423978;

}  // namespace

Initializer::Initializer(const char* name)
    : Initializer(named_choice("initializer", name, initializer_rows, [](const InitializerRow& row) {
                    return row.short_name;
                  }).initializer) {}

const InitializerRow& row_of(Initializer initializer) {
  const auto* const row = std::ranges::find(initializer_rows, initializer, &InitializerRow::initializer);
  if (row == initializer_rows.end()) throw InternalError("an initializer has no row in the table; please report this");
  return *row;
}

void initialize(const ParameterInfo& parameter, std::uint64_t seed, std::uint64_t index, std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(parameter.shape.elements()));
  const InitializerRow& row = row_of(parameter.initializer);
  RandomStream random(seed, RandomPurpose::initializer, index);
  switch (row.distribution) {
    case Distribution::constant: std::ranges::fill(values, static_cast<float>(row.scale)); return;
    case Distribution::uniform: {
      const auto limit = static_cast<float>(std::sqrt(3 * variance_of(row, parameter.shape)));
      for (float& value : values) value = limit * (2 * random.uniform() - 1);
      return;
    }
    case Distribution::truncated_normal: {
      const auto deviation = static_cast<float>(std::sqrt(variance_of(row, parameter.shape)) / truncated_deviation);
      for (float& value : values) {
        float draw = random.normal();
        while (std::abs(draw) > 2) draw = random.normal();
        value = deviation * draw;
      }
      return;
    }
  }
}

}  // namespace lockstep
