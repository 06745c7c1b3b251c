// Which elements of the gradient arena an operation writes, and what a shared layer's calls add to them.
#pragma once

#include "core/range.hpp"
#include "graph/graph.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

namespace lockstep {

/// Calls visit(Range) for each range of the gradient arena that an operation writes: gradients of its parameters,
/// metric sums or partial sums. A rank without examples fills them with zeros, because it still takes part in the
/// all-reduce.
template <typename Visit>
void for_each_gradient_range(const Graph& graph, const Operation& operation, const Visit& visit) {
  const auto visit_parameter = [&](std::size_t parameter) {
    const ParameterSpec& spec = graph.parameters[parameter];
    visit(Range{spec.offset, spec.offset + spec.storage});
  };
  if (makes_partial_sum(operation)) visit_parameter(static_cast<std::size_t>(*operation.partial_sum));
  if (operation.parameter < 0) return;
  const auto first_parameter = static_cast<std::size_t>(operation.parameter);
  if (operation.kind == OperationKind::loss) {
    visit_parameter(first_parameter);
    return;
  }
  if (!is_backward(operation) || operation.is_frozen) return;
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

/// What one call of a shared layer adds to the sum over its calls, of a gradient or of a moving average: `scale` times
/// what its kernel computes.
struct SharedTerm {
  int parameter;
  float scale;
};

/// The terms of an operation whose layer is called several times. Backward adds up the gradients of trainable weights.
/// Forward sums the layer's statistics into one update of the moving average. It equals an update with each call's
/// statistic, m <- momentum m + (1 - momentum) statistic, in the order of the calls.
[[nodiscard]] inline std::vector<SharedTerm> shared_terms(const Graph& graph, const Operation& operation) {
  std::vector<SharedTerm> terms;
  const auto [index, count] = operation.shared;
  if (count == 1 || operation.parameter < 0) return terms;
  for (int p = operation.parameter; p < operation.parameter + operation.num_parameters; ++p) {
    const ParameterSpec& spec = graph.parameters[p];
    if (is_backward(operation)) {
      if (spec.rule == UpdateRule::optimizer) terms.push_back({p, 1});
    } else if (spec.rule == UpdateRule::moving_average) {
      const double momentum = spec.info.momentum;
      double sum = 0;
      for (int i = 0; i < count; ++i) sum += std::pow(momentum, i);
      terms.push_back({p, static_cast<float>(std::pow(momentum, count - 1 - index) / sum)});
    }
  }
  return terms;
}

}  // namespace lockstep
