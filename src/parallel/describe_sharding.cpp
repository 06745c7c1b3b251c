// See describe_sharding.hpp.
#include "parallel/describe_sharding.hpp"

#include "core/format_number.hpp"
#include "parallel/sharding.hpp"
#include "parallel/sharding_table.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <optional>
#include <string>

namespace lockstep {

std::string describe_sharding(const std::string& provenance, const Graph& whole, int ranks) {
  const auto space = provenance.find(' ');
  const std::string name = provenance.substr(0, space);
  std::string text = count_of(ranks, "worker") + ", ";
  if (name == "replicated") return text + name;
  text += name + " parallel";
  if (space == std::string::npos || ranks < 1) return text;
  const std::optional<Sharding> sharding = sharding_from_code(whole, ranks, provenance.substr(space + 1));
  if (!sharding) return text + " (sharding unknown to this version)";
  std::string layers;
  for (const LayerSharding& row : layer_shardings(whole, sharding, ranks, 1)) {
    const bool has_weights = std::any_of(whole.layers.begin(), whole.layers.end(), [&](const LayerInfo& layer) {
      return layer.name == row.layer && !layer.parameters.empty();
    });
    if (!has_weights) continue;
    layers += (layers.empty() ? "" : ", ") + row.layer + " " + row.how.substr(0, row.how.find(','));
  }
  return text + ": " + layers;
}

}  // namespace lockstep
