// See microbatching.hpp.
#include "plan/microbatching.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

namespace {

/// With this many microbatches or fewer, the extra calls cost more than the cache saves. Measured with
/// custom_training_mnist on Zen 5: 4 microbatches on two threads lose 6 %, 8 on one thread gain 3 %, 32 gain 14 %.
constexpr std::size_t few_microbatches = 4;

/// If Graph::cache_bytes gives too few microbatches, they are sized for this fraction of it, which is about half a
/// second-level cache. Measured as above: gains 10 to 15 %.
constexpr std::size_t small_cache_divisor = 5;

/// False for operations with partial sums, which ranks all-reduce once for all examples.
bool is_microbatchable(const Operation& operation) {
  return !operation.partial_sum && traits_of(operation).is_microbatchable;
}

/// The number of examples for which this rank computes the model's first layers.
std::size_t local_examples(const Graph& graph) {
  return graph.forward.front().is_batch_split ? graph.examples_of(graph.capacity, graph.rank).size() : graph.capacity;
}

/// Splits the first `length` operations into microbatches that fit in `cache_bytes`. Returns length 0 if that gives too
/// few microbatches.
Microbatching try_microbatching(const Graph& graph, std::size_t length, std::size_t cache_bytes) {
  std::size_t bytes = 0;  // per example
  for (std::size_t i = 1; i < length; ++i) {
    bytes +=
        static_cast<std::size_t>(graph.tensors[graph.forward[i].output].elements()) * (graph.mixed_bfloat16 ? 2 : 4);
  }
  if (bytes == 0) return {};  // this rank has no channels of these tensors
  std::size_t examples = std::max<std::size_t>(1, cache_bytes / bytes);
  if (examples > 8) examples = examples / 8 * 8;  // kernels prefer multiples of eight
  const std::size_t microbatches = (local_examples(graph) + examples - 1) / examples;
  if (cache_bytes == 0 || microbatches <= few_microbatches) return {};
  return {.length = length, .microbatches = microbatches, .output = graph.forward[length - 1].output};
}

/// Microbatches all operations that allow it. If that gives too few microbatches, only those up to the first pooling,
/// which have the largest tensors, run in smaller microbatches.
Microbatching choose_microbatching(const Graph& graph) {
  const std::vector<Operation>& forward = graph.forward;
  std::size_t length = 1;  // gather
  bool convolves = false;
  for (; length < forward.size() && is_microbatchable(forward[length]); ++length) {
    convolves = convolves || forward[length].kind == OperationKind::convolution;
  }
  if (!convolves || length < 3) return {};
  const Microbatching all = try_microbatching(graph, length, graph.cache_bytes);
  if (all.length > 0) return all;
  const auto pools = [](const Operation& operation) { return operation.kind == OperationKind::max_pooling; };
  const auto end = forward.begin() + static_cast<std::ptrdiff_t>(length);
  const auto pooling = std::find_if(forward.begin(), end, pools);
  if (pooling == end) return {};
  return try_microbatching(graph, static_cast<std::size_t>(pooling - forward.begin()) + 1,
                           graph.cache_bytes / small_cache_divisor);
}

}  // namespace

Microbatching plan_microbatches(Graph& graph) {
  const Microbatching microbatching = choose_microbatching(graph);
  const std::size_t microbatches = microbatching.microbatches;
  // Only the pooling after a convolution reads the convolution's output, because the pooling's backward gets relu's
  // derivative from the winners. So the output and its gradient need memory for one microbatch only, which stays in the
  // cache.
  for (std::size_t i = 1; i + 1 < microbatching.length; ++i) {
    const Operation& operation = graph.forward[i];
    const bool flat =
        operation.activation == ActivationFunction::relu || operation.activation == ActivationFunction::linear;
    const bool pooled = graph.forward[i + 1].kind == OperationKind::max_pooling;
    if (operation.kind != OperationKind::convolution || !flat || !pooled) continue;
    graph.tensors[operation.output].microbatch_examples = (local_examples(graph) + microbatches - 1) / microbatches;
  }
  return microbatching;
}

}  // namespace lockstep
