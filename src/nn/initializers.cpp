// How parameters begin: Keras' variance-scaling initializers (X. Glorot and Y. Bengio, 2010; K. He et al., 2015), drawn
// from one counter-based stream a parameter, so that every worker makes the same values without talking.
#include "core/random.hpp"

#include <lockstep/nn/sequential.hpp>

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

/// All extents but the last two are a convolution's receptive field.
Fans fans_of(const Shape& shape) {
  const std::size_t rank = shape.rank();
  if (rank == 0) return {};
  if (rank == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double receptive = 1;
  for (std::size_t axis = 0; axis + 2 < rank; ++axis) receptive *= static_cast<double>(shape[axis]);
  return {receptive * static_cast<double>(shape[rank - 2]), receptive * static_cast<double>(shape[rank - 1])};
}

/// The variance the values are to have.
double variance_of(Initializer initializer, const Shape& shape) {
  const Fans fans = fans_of(shape);
  const bool he = initializer == Initializer::he_uniform || initializer == Initializer::he_normal;
  return he ? 2.0 / std::max(1.0, fans.in) : 1.0 / std::max(1.0, (fans.in + fans.out) / 2);
}

/// The standard deviation of a standard normal cut off at +-2.
constexpr double truncated_deviation = 0.87962566103423978;

}  // namespace

void initialize(const ParameterInfo& parameter, std::uint64_t seed, std::uint64_t index, std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(parameter.shape.elements()));
  RandomStream random(seed, RandomPurpose::initializer, index);
  const double variance = variance_of(parameter.initializer, parameter.shape);

  switch (parameter.initializer) {
    case Initializer::zeros: std::ranges::fill(values, 0.0F); break;
    case Initializer::ones: std::ranges::fill(values, 1.0F); break;
    case Initializer::glorot_uniform:
    case Initializer::he_uniform: {
      const auto limit = static_cast<float>(std::sqrt(3 * variance));
      for (float& value : values) value = limit * (2 * random.uniform() - 1);
      break;
    }
    case Initializer::glorot_normal:
    case Initializer::he_normal: {
      const auto deviation = static_cast<float>(std::sqrt(variance) / truncated_deviation);
      for (float& value : values) {
        float draw = random.normal();
        while (std::abs(draw) > 2) draw = random.normal();
        value = deviation * draw;
      }
      break;
    }
  }
}

}  // namespace lockstep
