// See work.hpp.
#include "graph/work.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

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

double expected_part_of_rows(const Graph& graph, const Operation& embedding, double examples) {
  const auto rows = static_cast<double>(graph.parameters[embedding.parameter].info.shape[0]);
  const double indices = examples * static_cast<double>(graph.tensors[embedding.input].elements());
  const double harmonic = std::log(rows) + std::numbers::egamma;  // the sum of 1 / r
  double read = 0;
  for (double r = 0; r < rows;) {  // rows of about the same frequency at once
    const double count = std::min(std::max(1.0, std::floor(r / 16)), rows - r);
    read += count * (1 - std::exp(-indices / harmonic / (r + (count + 1) / 2)));
    r += count;
  }
  return std::min(1.0, read / rows);
}

}  // namespace lockstep
