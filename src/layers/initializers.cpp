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

/// What one value is drawn from.
struct DrawRule {
  Distribution distribution = Distribution::constant;
  double center = 0;     ///< mean; of a constant, its value
  double deviation = 0;  ///< of uniform: half of its range
};

/// VarianceScaling (X. Glorot and Y. Bengio, 2010; K. He et al., 2015).
DrawRule scaled_variance(Distribution distribution, double scale, FanMode mode, const Shape& shape) {
  const Fans fans = fans_of(shape);
  double fan = (fans.in + fans.out) / 2;
  if (mode == FanMode::fan_in) fan = fans.in;
  if (mode == FanMode::fan_out) fan = fans.out;
  const double variance = scale / std::max(1.0, fan);
  if (distribution == Distribution::uniform) return {distribution, 0, std::sqrt(3 * variance)};
  constexpr double truncated_deviation = 0.87962566103423978;  // of a standard normal number between -2 and 2
  const double shrinks = distribution == Distribution::truncated_normal ? truncated_deviation : 1;
  return {distribution, 0, std::sqrt(variance) / shrinks};
}

DrawRule draw_rule(Initializer initializer, const Shape& shape) {
  const InitializerRow& row = row_of(initializer);
  switch (initializer.kind) {
    case Initializer::Kind::constant: return {row.distribution, initializer.first};
    case Initializer::Kind::random_uniform:
      return {row.distribution, (initializer.first + initializer.second) / 2,
              (initializer.second - initializer.first) / 2};
    case Initializer::Kind::random_normal:
    case Initializer::Kind::truncated_normal: return {row.distribution, initializer.first, initializer.second};
    case Initializer::Kind::variance_scaling:
      return scaled_variance(initializer.distribution, initializer.first, initializer.mode, shape);
    default: break;
  }
  if (row.distribution == Distribution::constant) return {row.distribution, row.scale};
  return scaled_variance(row.distribution, row.scale, row.mode, shape);
}

}  // namespace

Initializer::Initializer(const char* name)
    : Initializer(named_choice("initializer", name, initializer_rows, [](const InitializerRow& row) {
                    return row.short_name;
                  }).initializer) {}

const InitializerRow& row_of(Initializer initializer) {
  const auto* const row = std::ranges::find_if(
      initializer_rows, [&](const InitializerRow& any) { return any.initializer.kind == initializer.kind; });
  if (row == initializer_rows.end()) throw InternalError("an initializer has no row in the table; please report this");
  return *row;
}

void initialize(const ParameterInfo& parameter, std::uint64_t seed, std::uint64_t index, std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(parameter.shape.elements()));
  const DrawRule rule = draw_rule(parameter.initializer, parameter.shape);
  const auto center = static_cast<float>(rule.center);
  const auto deviation = static_cast<float>(rule.deviation);
  RandomStream random(seed, RandomPurpose::initializer, index);
  switch (rule.distribution) {
    case Distribution::constant: std::ranges::fill(values, center); return;
    case Distribution::uniform:
      for (float& value : values) value = center + deviation * (2 * random.uniform() - 1);
      return;
    case Distribution::normal:
      for (float& value : values) value = center + deviation * random.normal();
      return;
    case Distribution::truncated_normal:
      for (float& value : values) {
        float draw = random.normal();
        while (std::abs(draw) > 2) draw = random.normal();
        value = center + deviation * draw;
      }
      return;
  }
}

}  // namespace lockstep
