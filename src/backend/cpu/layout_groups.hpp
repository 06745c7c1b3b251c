// The layouts of a graph with branches. Tensors that operations without a kernel connect have one layout and form a
// group; convolutions connect groups, and may convert.
#pragma once

#include "graph/graph.hpp"

#include <functional>
#include <vector>

namespace lockstep {

/// The group of each tensor, numbered from 0 in the order of first tensors. A tensor and its forks, and what merges,
/// poolings, normalizations and elementwise operations read and write, are in one group.
[[nodiscard]] std::vector<int> group_tensors(const Graph& graph);

/// A convolution between two groups, which may be the same.
struct GroupEdge {
  int from = 0;
  int to = 0;
};

/// Returns a layout for each group. Begins with the cheapest of the assignments that give all groups the same layout as
/// far as they allow it, and then changes one group after the other while that costs less. `allowed`: of each group,
/// at least one. `cost(edge, from, to)`: what the convolution costs between these layouts.
[[nodiscard]] std::vector<Layout> choose_group_layouts(
    const std::vector<std::vector<Layout>>& allowed, const std::vector<GroupEdge>& edges,
    const std::function<double(std::size_t edge, Layout from, Layout to)>& cost);

}  // namespace lockstep
