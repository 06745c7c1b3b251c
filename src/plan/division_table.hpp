// How each layer of a model is divided, for people.
#pragma once

#include "plan/division.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct LayerDivision {
  std::string layer;
  std::string how;          ///< "by channels, 16 + 16"
  double bytes_a_step = 0;  ///< that each of the ranks sends
};

/// A row for each layer that computes. Without a division it is by examples.
[[nodiscard]] std::vector<LayerDivision> layer_divisions(const Graph& whole,
                                                         const std::optional<FeatureDivision>& division, int ranks,
                                                         std::size_t batch);

/// The rows as lines, in columns.
[[nodiscard]] std::string to_text(const std::vector<LayerDivision>& rows);

/// "64.5 kB"
[[nodiscard]] std::string bytes_to_text(double bytes);

}  // namespace lockstep
