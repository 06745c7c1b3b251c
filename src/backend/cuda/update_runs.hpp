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
  std::size_t parameter = 0;  ///< the one it begins with, as a place in Graph::parameters

  friend bool operator==(const UpdateRun&, const UpdateRun&) = default;
};

/// The runs of [begin, end): neighbours with one rule are one run, the padding between them included, where gradients
/// and weights are zero and stay so. `apart`: every parameter is a run of its own.
[[nodiscard]] inline std::vector<UpdateRun> runs_of(const Graph& graph, std::size_t begin, std::size_t end,
                                                    bool apart = false) {
  std::vector<UpdateRun> all;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const ParameterSpec& parameter = graph.parameters[p];
    all.push_back({parameter.offset, parameter.offset + parameter.storage, parameter.rule, parameter.momentum, p});
  }
  std::sort(all.begin(), all.end(), [](const UpdateRun& a, const UpdateRun& b) { return a.begin < b.begin; });
  std::vector<UpdateRun> runs;
  for (const UpdateRun& run : all) {
    UpdateRun within = run;
    within.begin = std::max(run.begin, begin);
    within.end = std::min(run.end, end);
    if (within.begin >= within.end) continue;
    const bool goes_on =
        !apart && !runs.empty() && runs.back().rule == run.rule && runs.back().momentum == run.momentum;
    if (goes_on) {
      runs.back().end = within.end;
    } else {
      runs.push_back(within);
    }
  }
  return runs;
}

}  // namespace lockstep::cuda
