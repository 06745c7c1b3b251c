// See division_words.hpp.
#include "plan/division_words.hpp"

#include "plan/division.hpp"
#include "plan/division_table.hpp"

#include <algorithm>
#include <optional>
#include <string>

namespace lockstep {

std::string division_in_words(const std::string& kept, const Graph& whole, int ranks) {
  const auto space = kept.find(' ');
  const std::string name = kept.substr(0, space);
  std::string text = std::to_string(ranks) + (ranks == 1 ? " worker, " : " workers, ");
  if (name == "none") return text + "each of which computes all";
  text += "by " + name;
  if (space == std::string::npos || ranks < 1) return text;
  const std::optional<FeatureDivision> division = division_of(whole, ranks, kept.substr(space + 1));
  if (!division) return text + ", in a way that this version does not know";
  std::string layers;
  for (const LayerDivision& row : layer_divisions(whole, division, ranks, 1)) {
    const bool has_weights = std::any_of(whole.layers.begin(), whole.layers.end(), [&](const LayerInfo& layer) {
      return layer.name == row.layer && !layer.parameters.empty();
    });
    if (!has_weights) continue;
    layers += (layers.empty() ? "" : ", ") + row.layer + " " + row.how.substr(0, row.how.find(','));
  }
  return text + ": " + layers;
}

}  // namespace lockstep
