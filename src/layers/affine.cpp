// See affine.hpp.
#include "layers/affine.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <variant>

namespace lockstep {
namespace {

Affine affine_of_normalization(const Normalization& normalization) {
  Affine affine;
  const std::size_t count = std::max(normalization.mean.size(), normalization.variance.size());
  for (std::size_t i = 0; i < count; ++i) {
    const double mean = normalization.mean[std::min(i, normalization.mean.size() - 1)];
    const double variance = normalization.variance[std::min(i, normalization.variance.size() - 1)];
    const auto [scale, shift] = normalization_of(mean, variance, normalization.invert);
    affine.scale.push_back(scale);
    affine.shift.push_back(shift);
  }
  return affine;
}

}  // namespace

ScaleAndShift normalization_of(double mean, double variance, bool invert) {
  constexpr double epsilon = 1e-7;  // replaces a deviation of 0, as in Keras
  const double deviation = std::max(std::sqrt(variance), epsilon);
  const double scale = invert ? deviation : 1 / deviation;
  return {static_cast<float>(scale), static_cast<float>(invert ? mean : -mean * scale)};
}

Affine affine_of(const Layer& layer) {
  return std::visit(
      []<typename L>(const L& any) -> Affine {
        if constexpr (std::is_same_v<L, Rescaling>) {
          return {{static_cast<float>(any.scale)}, {static_cast<float>(any.offset)}};
        } else if constexpr (std::is_same_v<L, CustomScaleLayer>) {
          return {{static_cast<float>(any.scale)}, {0}};
        } else if constexpr (std::is_same_v<L, Normalization>) {
          return affine_of_normalization(any);
        } else {
          throw InternalError("an affine operation was lowered from a layer without constants; please report this");
        }
      },
      layer);
}

}  // namespace lockstep
