// The table of initializers: Keras' names and formulas, one row each.
#pragma once

#include <lockstep/layers/initializer.hpp>

#include <array>
#include <string_view>

namespace lockstep {

/// The distributions of Keras' VarianceScaling, or a constant.
enum class Distribution { constant, uniform, truncated_normal };

/// The fan by which VarianceScaling divides its scale: the number of inputs of a unit, or the mean of inputs and
/// outputs.
enum class FanMode { fan_in, fan_average };

struct InitializerRow {
  Initializer initializer;
  std::string_view class_name;  ///< Keras' name in files
  std::string_view short_name;  ///< Keras' name in programs
  Distribution distribution;
  double scale;  ///< the variance times the fan; for a constant, its value
  FanMode mode = FanMode::fan_in;
};

inline constexpr std::array initializer_rows{
    InitializerRow{Initializer::glorot_uniform, "GlorotUniform", "glorot_uniform", Distribution::uniform, 1,
                   FanMode::fan_average},
    InitializerRow{Initializer::glorot_normal, "GlorotNormal", "glorot_normal", Distribution::truncated_normal, 1,
                   FanMode::fan_average},
    InitializerRow{Initializer::he_uniform, "HeUniform", "he_uniform", Distribution::uniform, 2},
    InitializerRow{Initializer::he_normal, "HeNormal", "he_normal", Distribution::truncated_normal, 2},
    InitializerRow{Initializer::zeros, "Zeros", "zeros", Distribution::constant, 0},
    InitializerRow{Initializer::ones, "Ones", "ones", Distribution::constant, 1},
};

/// Throws InternalError for an initializer without a row.
[[nodiscard]] const InitializerRow& row_of(Initializer initializer);

}  // namespace lockstep
