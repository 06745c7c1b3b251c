// Which elements of the gradient arena an operation writes.
#pragma once

#include "core/range.hpp"
#include "graph/graph.hpp"

#include <cstddef>

namespace lockstep {

/// Calls visit(Range) for each range of the gradient arena that an operation writes: gradients of its parameters, or
/// metric sums. A rank without examples fills them with zeros, because it still takes part in the all-reduce.
template <typename Visit>
void for_each_gradient_range(const Graph& graph, const Operation& operation, const Visit& visit) {
  if (operation.parameter < 0) return;
  const auto first_parameter = static_cast<std::size_t>(operation.parameter);
  const auto visit_parameter = [&](std::size_t parameter) {
    const ParameterSpec& spec = graph.parameters[parameter];
    visit(Range{spec.offset, spec.offset + spec.storage});
  };
  if (operation.kind == OperationKind::loss) {
    visit_parameter(first_parameter);
    return;
  }
  if (!is_backward(operation)) return;
  const auto count = static_cast<std::size_t>(operation.num_parameters);
  std::size_t first = 0;
  if (operation.kind == OperationKind::dense_backward) {  // this chunk of the kernel; the first includes the bias
    const ParameterSpec& kernel = graph.parameters[first_parameter];
    const auto units = static_cast<std::size_t>(kernel.info.shape[1]);
    const Range& rows = operation.input_features;
    visit(Range{kernel.offset + rows.begin * units, kernel.offset + rows.end * units});
    first = rows.begin == 0 ? 1 : count;
  }
  for (std::size_t i = first; i < count; ++i) visit_parameter(first_parameter + i);
}

}  // namespace lockstep
