// Draws initial values from one counter-based stream per parameter, so that every worker computes the same values
// without communication.
#include "layers/initializers.hpp"

#include "core/random.hpp"
#include "layers/named_choice.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
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

/// The sum of a[i] b[i], in lanes that the compiler adds side by side.
double dot(std::span<const double> a, std::span<const double> b) {
  constexpr std::size_t lanes = 8;
  std::array<double, lanes> sums{};
  std::size_t i = 0;
  for (; i + lanes <= a.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

/// Makes the vectors of `length` elements orthonormal, one after the other (Gram-Schmidt). Twice, which leaves errors
/// of rounding only (L. Giraud et al., 2005).
void make_orthonormal(std::vector<double>& vectors, std::size_t length) {
  const auto vector = [&](std::size_t index) { return std::span(vectors).subspan(index * length, length); };
  for (std::size_t i = 0; i < vectors.size() / length; ++i) {
    const std::span<double> mine = vector(i);
    for (int round = 0; round < 2; ++round) {
      for (std::size_t j = 0; j < i; ++j) {
        const std::span<const double> other = vector(j);
        const double share = dot(mine, other);
        for (std::size_t k = 0; k < length; ++k) mine[k] -= share * other[k];
      }
      const double norm = std::sqrt(dot(mine, mine));
      for (double& element : mine) element /= norm;
    }
  }
}

/// The last axis of the shape, and the product of the others.
std::pair<std::size_t, std::size_t> columns_and_rows(const ParameterInfo& parameter) {
  const Shape& shape = parameter.shape;
  const auto columns = static_cast<std::size_t>(shape[shape.rank() - 1]);
  return {columns, static_cast<std::size_t>(shape.elements()) / std::max<std::size_t>(columns, 1)};
}

void require_axes(const ParameterInfo& parameter, bool has_right_axes, const char* needed) {
  if (has_right_axes) return;
  throw UsageError(fmt::format("the initializer {} of '{}' needs {}, but the shape is {}; choose another initializer",
                               row_of(parameter.initializer).short_name, parameter.name, needed,
                               parameter.shape.to_string()));
}

/// A random matrix with orthonormal columns, or rows if they are fewer, times the gain.
void fill_orthogonal(const ParameterInfo& parameter, RandomStream random, std::vector<float>& values) {
  require_axes(parameter, parameter.shape.rank() >= 2, "two axes or more");
  const auto [columns, rows] = columns_and_rows(parameter);
  const std::size_t length = std::max(columns, rows);
  std::vector<double> vectors(values.size());
  for (double& element : vectors) element = random.normal();
  make_orthonormal(vectors, length);
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const std::size_t vector = i / length;
    const std::size_t at = rows < columns ? i : i % length * columns + vector;
    values[at] = static_cast<float>(parameter.initializer.first * vectors[i]);
  }
}

void fill_identity(const ParameterInfo& parameter, std::vector<float>& values) {
  require_axes(parameter, parameter.shape.rank() == 2, "a matrix");
  const auto [columns, rows] = columns_and_rows(parameter);
  std::ranges::fill(values, 0.0F);
  for (std::size_t i = 0; i < std::min(columns, rows); ++i)
    values[i * columns + i] = static_cast<float>(parameter.initializer.first);
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
  RandomStream random(seed, RandomPurpose::initializer, index);
  if (parameter.initializer.kind == Initializer::Kind::orthogonal) return fill_orthogonal(parameter, random, values);
  if (parameter.initializer.kind == Initializer::Kind::identity) return fill_identity(parameter, values);
  const DrawRule rule = draw_rule(parameter.initializer, parameter.shape);
  const auto center = static_cast<float>(rule.center);
  const auto deviation = static_cast<float>(rule.deviation);
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
