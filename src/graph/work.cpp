// See work.hpp.
#include "graph/work.hpp"

namespace lockstep {

double multiply_adds_per_example(const Graph& graph, const Operation& operation) {
  if (!traits_of(operation).has_kernel) return 0;
  const TensorSpec& pixels = graph.tensors[operation.is_transposed ? operation.input : operation.output];
  return static_cast<double>(pixels.height * pixels.width) *
         static_cast<double>(graph.parameters[operation.parameter].info.shape.elements());
}

double estimate_work(const Graph& graph) {
  constexpr double work_per_element = 8;
  double work = 0;
  for (const Operation& operation : graph.forward) {
    work += multiply_adds_per_example(graph, operation);
    if (operation.output >= 0)
      work += work_per_element * static_cast<double>(graph.tensors[operation.output].elements());
  }
  return work;
}

}  // namespace lockstep
