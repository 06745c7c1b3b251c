// The table of initializers: Keras' names and formulas, one row each.
#pragma once

#include "core/fields.hpp"

#include <lockstep/layers/initializer.hpp>

#include <array>
#include <string_view>
#include <utility>

namespace lockstep {

struct InitializerRow {
  Initializer initializer;
  std::string_view class_name;  ///< Keras' name in files
  std::string_view short_name;  ///< Keras' name in programs
  Distribution distribution;
  double scale = 0;  ///< the variance times the fan; for a constant, its value
  FanMode mode = FanMode::fan_in;
};

/// Kinds with parameters have Keras' defaults here; `draw_rule` replaces them.
inline constexpr std::array initializer_rows{
    InitializerRow{Initializer::glorot_uniform, "GlorotUniform", "glorot_uniform", Distribution::uniform, 1,
                   FanMode::fan_average},
    InitializerRow{Initializer::glorot_normal, "GlorotNormal", "glorot_normal", Distribution::truncated_normal, 1,
                   FanMode::fan_average},
    InitializerRow{Initializer::he_uniform, "HeUniform", "he_uniform", Distribution::uniform, 2},
    InitializerRow{Initializer::he_normal, "HeNormal", "he_normal", Distribution::truncated_normal, 2},
    InitializerRow{Initializer::lecun_uniform, "LecunUniform", "lecun_uniform", Distribution::uniform, 1},
    InitializerRow{Initializer::lecun_normal, "LecunNormal", "lecun_normal", Distribution::truncated_normal, 1},
    InitializerRow{Initializer::zeros, "Zeros", "zeros", Distribution::constant, 0},
    InitializerRow{Initializer::ones, "Ones", "ones", Distribution::constant, 1},
    InitializerRow{Initializer::constant, "Constant", "constant", Distribution::constant},
    InitializerRow{Initializer::random_uniform, "RandomUniform", "random_uniform", Distribution::uniform},
    InitializerRow{Initializer::random_normal, "RandomNormal", "random_normal", Distribution::normal},
    InitializerRow{Initializer::truncated_normal, "TruncatedNormal", "truncated_normal",
                   Distribution::truncated_normal},
    InitializerRow{Initializer::variance_scaling, "VarianceScaling", "variance_scaling", Distribution::truncated_normal,
                   1},
    InitializerRow{Initializer::orthogonal, "Orthogonal", "orthogonal", Distribution::normal, 1},
    InitializerRow{Initializer::identity, "Identity", "identity", Distribution::constant},
};

/// The row of the initializer's kind. Throws InternalError if there is none.
[[nodiscard]] const InitializerRow& row_of(Initializer initializer);

/// Visits the fields of an initializer that has parameters; see core/fields.hpp.
void visit_initializer_fields(auto& visit, auto& initializer) {
  using Kind = Initializer::Kind;
  switch (initializer.kind) {
    case Kind::constant: visit.optional("value", initializer.first, any_number); return;
    case Kind::random_uniform:
      visit.optional("minval", initializer.first, any_number);
      visit.optional("maxval", initializer.second, any_number);
      return;
    case Kind::random_normal:
    case Kind::truncated_normal:
      visit.optional("mean", initializer.first, any_number);
      visit.optional("stddev", initializer.second, not_negative);
      return;
    case Kind::variance_scaling:
      visit.optional("scale", initializer.first, positive);
      visit.optional("mode", initializer.mode);
      visit.optional("distribution", initializer.distribution);
      return;
    case Kind::orthogonal:
    case Kind::identity: visit.optional("gain", initializer.first, any_number); return;
    default: return;
  }
}

/// Keras' names of fan modes and of VarianceScaling's distributions.
inline constexpr std::array fan_modes{std::pair{FanMode::fan_in, std::string_view("fan_in")},
                                      std::pair{FanMode::fan_out, std::string_view("fan_out")},
                                      std::pair{FanMode::fan_average, std::string_view("fan_avg")}};
inline constexpr std::array distributions{
    std::pair{Distribution::uniform, std::string_view("uniform")},
    std::pair{Distribution::truncated_normal, std::string_view("truncated_normal")},
    std::pair{Distribution::normal, std::string_view("untruncated_normal")}};

}  // namespace lockstep
