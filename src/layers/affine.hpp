// Layers that multiply by constants and add constants.
#pragma once

#include <lockstep/layers/layer.hpp>

#include <vector>

namespace lockstep {

/// y = scale x + shift: one of each for all channels, or one for each channel.
struct Affine {
  std::vector<float> scale;
  std::vector<float> shift;
};

/// Of Rescaling, Normalization, and the second input of CustomScaleLayer. Throws InternalError for any other layer.
[[nodiscard]] Affine affine_of(const Layer& layer);

/// What a Normalization multiplies one channel by, and adds to it.
struct ScaleAndShift {
  float scale;
  float shift;
};
[[nodiscard]] ScaleAndShift normalization_of(double mean, double variance, bool invert);

}  // namespace lockstep
