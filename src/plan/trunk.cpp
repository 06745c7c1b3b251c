// See trunk.hpp.
#include "plan/trunk.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

namespace {

/// So many slices or fewer gain less than their calls cost (measured, custom_training_mnist on Zen 5: 4 slices on two
/// threads lose 6 %, 8 on one gain 3 %, 32 gain 14 %).
constexpr std::size_t few_slices = 4;

/// The part of Graph::cache_bytes that slices get of which there would be few else: half a second-level cache (measured
/// as above: 10 to 15 %).
constexpr std::size_t small_cache = 5;

/// False where ranks sum up: they do so once, for all examples.
bool treats_each_alone(const Operation& operation) {
  const OperationKind kind = operation.kind;
  if (operation.sum >= 0) return false;
  return kind == OperationKind::convolution || kind == OperationKind::max_pooling ||
         kind == OperationKind::average_pooling || kind == OperationKind::activation || kind == OperationKind::dropout;
}

/// Examples that the model's beginning is computed for on this rank.
std::size_t rows_of_trunk(const Graph& graph) {
  return graph.forward.front().by_examples ? graph.rows_of(graph.capacity, graph.rank).size() : graph.capacity;
}

/// The first `length` operations in slices that fit a cache of so many bytes; none where that makes too few slices to
/// be worth it.
Trunk slice_first(const Graph& graph, std::size_t length, std::size_t cache_bytes) {
  std::size_t bytes = 0;  // of an example
  for (std::size_t i = 1; i < length; ++i) {
    bytes +=
        static_cast<std::size_t>(graph.tensors[graph.forward[i].output].elements()) * (graph.mixed_bfloat16 ? 2 : 4);
  }
  if (bytes == 0) return {};  // a rank that has no channel of it
  std::size_t rows = std::max<std::size_t>(1, cache_bytes / bytes);
  if (rows > 8) rows = rows / 8 * 8;  // kernels like eights
  const std::size_t slices = (rows_of_trunk(graph) + rows - 1) / rows;
  if (cache_bytes == 0 || slices <= few_slices) return {};
  return {.length = length, .slices = static_cast<int>(slices), .output = graph.forward[length - 1].output};
}

/// Where all of it makes too few slices, only the operations up to the first pooling are the trunk, which pass on the
/// most, in smaller slices.
Trunk choose_trunk(const Graph& graph) {
  const std::vector<Operation>& forward = graph.forward;
  std::size_t length = 1;  // gather
  bool convolves = false;
  for (; length < forward.size() && treats_each_alone(forward[length]); ++length) {
    convolves = convolves || forward[length].kind == OperationKind::convolution;
  }
  if (!convolves || length < 3) return {};
  const Trunk all = slice_first(graph, length, graph.cache_bytes);
  if (all.length > 0) return all;
  const auto pools = [](const Operation& operation) { return operation.kind == OperationKind::max_pooling; };
  const auto end = forward.begin() + static_cast<std::ptrdiff_t>(length);
  const auto pooling = std::find_if(forward.begin(), end, pools);
  if (pooling == end) return {};
  return slice_first(graph, static_cast<std::size_t>(pooling - forward.begin()) + 1, graph.cache_bytes / small_cache);
}

}  // namespace

Trunk slice_trunk(Graph& graph) {
  const Trunk trunk = choose_trunk(graph);
  const auto slices = static_cast<std::size_t>(trunk.slices);
  // What a convolution gives to a pooling nobody reads again: backward of the pooling knows relu's derivative from who
  // won. So its values, and its gradients too, need memory for one slice only, which then stays in the cache.
  for (std::size_t i = 1; i + 1 < trunk.length; ++i) {
    const Operation& operation = graph.forward[i];
    const bool flat =
        operation.activation == ActivationFunction::relu || operation.activation == ActivationFunction::linear;
    const bool pooled = graph.forward[i + 1].kind == OperationKind::max_pooling;
    if (operation.kind != OperationKind::convolution || !flat || !pooled) continue;
    graph.tensors[operation.output].passing_rows = (rows_of_trunk(graph) + slices - 1) / slices;
  }
  return trunk;
}

}  // namespace lockstep
