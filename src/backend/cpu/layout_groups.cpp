// See layout_groups.hpp.
#include "backend/cpu/layout_groups.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace lockstep {

namespace {

/// Sets that are joined one pair after the other (B. Galler and M. Fischer, 1964).
class DisjointSets {
 public:
  explicit DisjointSets(std::size_t count) : parents_(count) { std::iota(parents_.begin(), parents_.end(), 0); }

  int find(int member) {
    while (parents_[member] != member) member = parents_[member] = parents_[parents_[member]];
    return member;
  }
  void join(int a, int b) { parents_[std::max(find(a), find(b))] = std::min(find(a), find(b)); }

 private:
  std::vector<int> parents_;
};

}  // namespace

std::vector<int> group_tensors(const Graph& graph) {
  DisjointSets sets(graph.tensors.size());
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].alias >= 0) sets.join(static_cast<int>(t), graph.tensors[t].alias);
  }
  for (const Operation& operation : graph.forward) {
    if (operation.input < 0 || operation.output < 0 || traits_of(operation).has_kernel) continue;
    if (graph.tensors[operation.output].elements() == 1) continue;  // one element lies the same way in every layout
    sets.join(operation.input, operation.output);
    for (const Operand& operand : operation.operands) sets.join(operand.tensor, operation.output);
  }
  std::vector<int> groups;
  std::vector<int> numbers(graph.tensors.size(), -1);
  int next = 0;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    int& number = numbers[sets.find(static_cast<int>(t))];
    if (number < 0) number = next++;
    groups.push_back(number);
  }
  return groups;
}

std::vector<Layout> choose_group_layouts(const std::vector<std::vector<Layout>>& allowed,
                                         const std::vector<GroupEdge>& edges,
                                         const std::function<double(std::size_t edge, Layout from, Layout to)>& cost) {
  const auto total = [&](const std::vector<Layout>& chosen, int group) {
    double sum = 0;
    for (std::size_t e = 0; e < edges.size(); ++e) {
      if (group < 0 || edges[e].from == group || edges[e].to == group)
        sum += cost(e, chosen[edges[e].from], chosen[edges[e].to]);
    }
    return sum;
  };
  constexpr int all = -1;
  std::vector<Layout> best;
  double best_cost = std::numeric_limits<double>::infinity();
  for (const Layout layout : {Layout::nChw16c, Layout::nChw8c, Layout::nhwc}) {
    std::vector<Layout> uniform;
    for (const std::vector<Layout>& layouts : allowed) {
      const bool has = std::ranges::find(layouts, layout) != layouts.end();
      uniform.push_back(has ? layout : layouts.front());
    }
    const double its_cost = total(uniform, all);
    if (!best.empty() && its_cost >= best_cost) continue;
    best = uniform;
    best_cost = its_cost;
  }
  for (bool changed = true; changed;) {  // ends, because each change lowers the cost
    changed = false;
    for (std::size_t group = 0; group < allowed.size(); ++group) {
      for (const Layout layout : allowed[group]) {
        std::vector<Layout> other = best;
        other[group] = layout;
        if (total(other, static_cast<int>(group)) >= total(best, static_cast<int>(group))) continue;
        best = other;
        changed = true;
      }
    }
  }
  return best;
}

}  // namespace lockstep
