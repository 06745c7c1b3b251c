// See autodiff.hpp. The graph is a chain, so backward is forward in reverse order, with each operation replaced by its
// gradient.
#include "graph/autodiff.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

namespace {

/// For each tensor, whether backward needs its gradient: whether an operation that it depends on has parameters.
std::vector<bool> find_needed_gradients(const Graph& graph) {
  std::vector<bool> needed(graph.tensors.size(), false);
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].alias >= 0) needed[t] = needed[graph.tensors[t].alias];
    for (const Operation& operation : graph.forward) {
      if (operation.output != static_cast<int>(t)) continue;
      needed[t] = operation.parameter >= 0 || (operation.input >= 0 && needed[operation.input]);
    }
  }
  return needed;
}

}  // namespace

void add_backward(Graph& graph) {
  const std::vector<bool> needed = find_needed_gradients(graph);
  // NOLINTNEXTLINE(modernize-loop-convert): clang 14 cannot compile std::views::reverse of libstdc++
  for (auto operation = graph.forward.rbegin(); operation != graph.forward.rend(); ++operation) {
    if (operation->kind == OperationKind::loss) {
      operation->input_gradient = needed[operation->input];
      continue;
    }
    if (operation->kind == OperationKind::gather || !needed[operation->output]) continue;
    const std::optional<OperationKind> kind = traits_of(*operation).backward;
    if (!kind) throw InternalError("operation " + std::string(to_string(operation->kind)) + " has no gradient");
    Operation backward = *operation;
    backward.kind = *kind;
    backward.input_gradient = needed[operation->input];
    if (operation->kind == OperationKind::dense)
      backward.input_features = {0, static_cast<std::size_t>(graph.tensors[operation->input].elements())};
    graph.backward.push_back(backward);
  }
}

}  // namespace lockstep
