// See synchronize_statistics.hpp.
#include "graph/synchronize_statistics.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

bool needs_sums(const Graph& graph, const Operation& operation) {
  const bool normalizes = operation.kind == OperationKind::batch_normalization ||
                          operation.kind == OperationKind::batch_normalization_backward;
  const bool splits_batch = graph.ranks == 1 || operation.is_batch_split;
  return normalizes && splits_batch && !operation.is_frozen &&
         std::get<BatchNormalization>(graph.layers[operation.layer].layer).synchronized;
}

/// Adds the parameter in whose memory two sums for each channel are all-reduced.
int add_channel_sums(Graph& graph, const Operation& operation, const std::string& what) {
  const Shape shape{2, graph.tensors[operation.input].channels};
  graph.parameters.push_back({.name = graph.tensors[operation.output].name + "/" + what,
                              .info = {what, shape, Initializer::zeros, false},
                              .storage = static_cast<std::size_t>(shape.elements()),
                              .rule = UpdateRule::assign});
  ++graph.partial_sums;
  return static_cast<int>(graph.parameters.size()) - 1;
}

void insert_sums(Graph& graph, std::vector<Operation>& operations, OperationKind kind, const std::string& what) {
  std::vector<Operation> with_sums;
  for (Operation& operation : operations) {
    if (needs_sums(graph, operation)) {
      operation.partial_sum = add_channel_sums(graph, operation, what);
      Operation sums = operation;
      sums.kind = kind;
      if (is_backward(kind)) sums.num_parameters = 0;  // the gradients of the layer's weights come after it
      sums.shared = {};
      with_sums.push_back(std::move(sums));
    }
    with_sums.push_back(std::move(operation));
  }
  operations = std::move(with_sums);
}

}  // namespace

void synchronize_statistics(Graph& graph) {
  insert_sums(graph, graph.forward, OperationKind::batch_statistics, "statistics");
  insert_sums(graph, graph.backward, OperationKind::batch_gradient_sums, "gradient_sums");
}

}  // namespace lockstep
