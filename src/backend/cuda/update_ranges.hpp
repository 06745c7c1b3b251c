// Splits a shard into ranges that one update rule applies to. Host arithmetic only, so it is tested without a GPU.
#pragma once

#include "backend/backend.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::cuda {

/// A range of the arenas whose elements are updated by one rule.
struct UpdateRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  UpdateRule rule = UpdateRule::optimizer;
  float momentum = 0;
  std::size_t parameter = 0;  ///< index in Graph::parameters of the range's first parameter

  friend bool operator==(const UpdateRange&, const UpdateRange&) = default;
};

/// Splits [begin, end) into ranges. Adjacent parameters with the same rule share a range, including the padding between
/// them, where gradients and weights stay zero. `per_parameter`: every parameter has a separate range.
[[nodiscard]] inline std::vector<UpdateRange> update_ranges(const Graph& graph, std::size_t begin, std::size_t end,
                                                            bool per_parameter = false) {
  std::vector<UpdateRange> all;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const ParameterSpec& parameter = graph.parameters[p];
    all.push_back({parameter.offset, parameter.offset + parameter.storage, parameter.rule, parameter.momentum, p});
  }
  std::sort(all.begin(), all.end(), [](const UpdateRange& a, const UpdateRange& b) { return a.begin < b.begin; });
  std::vector<UpdateRange> ranges;
  for (const UpdateRange& parameter : all) {
    UpdateRange within = parameter;
    within.begin = std::max(parameter.begin, begin);
    within.end = std::min(parameter.end, end);
    if (within.begin >= within.end) continue;
    const bool extends_last = !per_parameter && !ranges.empty() && ranges.back().rule == parameter.rule &&
                              ranges.back().momentum == parameter.momentum;
    if (extends_last) {
      ranges.back().end = within.end;
    } else {
      ranges.push_back(within);
    }
  }
  return ranges;
}

}  // namespace lockstep::cuda
