// Which parts of a share are updated by which rule: arithmetic only.
#pragma once

#include "backend/backend.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::cuda {

/// A range of the arenas whose elements are updated by one rule.
struct UpdateRun {
  std::size_t begin = 0;
  std::size_t end = 0;
  UpdateRule rule = UpdateRule::optimizer;
  float momentum = 0;

  friend bool operator==(const UpdateRun&, const UpdateRun&) = default;
};

/// The runs of [begin, end): neighbours with one rule are one run, the padding between them included, where gradients
/// and weights are zero and stay so.
[[nodiscard]] inline std::vector<UpdateRun> runs_of(const Graph& graph, std::size_t begin, std::size_t end) {
  std::vector<UpdateRun> all;
  for (const ParameterSpec& parameter : graph.parameters) {
    all.push_back({parameter.offset, parameter.offset + parameter.storage, parameter.rule, parameter.momentum});
  }
  std::sort(all.begin(), all.end(), [](const UpdateRun& a, const UpdateRun& b) { return a.begin < b.begin; });
  std::vector<UpdateRun> runs;
  for (const UpdateRun& run : all) {
    const UpdateRun within{std::max(run.begin, begin), std::min(run.end, end), run.rule, run.momentum};
    if (within.begin >= within.end) continue;
    const bool goes_on = !runs.empty() && runs.back().rule == run.rule && runs.back().momentum == run.momentum;
    if (goes_on) {
      runs.back().end = within.end;
    } else {
      runs.push_back(within);
    }
  }
  return runs;
}

}  // namespace lockstep::cuda
