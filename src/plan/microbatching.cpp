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

/// Splits the operations [begin, end) into microbatches that fit in `cache_bytes`. One microbatch if that gives too
/// few.
Segment try_microbatches(const Graph& graph, std::size_t begin, std::size_t end, std::size_t cache_bytes) {
  std::size_t bytes = 0;  // per example
  for (std::size_t i = begin; i < end; ++i) {
    if (graph.forward[i].kind == OperationKind::gather) continue;
    bytes +=
        static_cast<std::size_t>(graph.tensors[graph.forward[i].output].elements()) * (graph.mixed_bfloat16 ? 2 : 4);
  }
  if (bytes == 0) return {begin, end};  // this rank has no channels of these tensors
  std::size_t examples = std::max<std::size_t>(1, cache_bytes / bytes);
  if (examples > 8) examples = examples / 8 * 8;  // kernels prefer multiples of eight
  const std::size_t microbatches = (local_examples(graph) + examples - 1) / examples;
  if (cache_bytes == 0 || microbatches <= few_microbatches) return {begin, end};
  return {begin, end, microbatches};
}

/// Microbatches operations that all allow it. If that gives too few microbatches, only those up to the first pooling,
/// which have the largest tensors, run in smaller microbatches.
void add_segments(const Graph& graph, std::size_t begin, std::size_t end, std::vector<Segment>& segments) {
  const std::vector<Operation>& forward = graph.forward;
  const auto at = [&](std::size_t i) { return forward.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto is = [](OperationKind kind) {
    return [kind](const Operation& operation) { return operation.kind == kind; };
  };
  const auto computed = std::count_if(
      at(begin), at(end), [](const Operation& operation) { return operation.kind != OperationKind::gather; });
  const bool pays = computed >= 2 && std::any_of(at(begin), at(end), is(OperationKind::convolution));
  const Segment all = pays ? try_microbatches(graph, begin, end, graph.cache_bytes) : Segment{begin, end};
  const auto pooling = std::find_if(at(begin), at(end), is(OperationKind::max_pooling));
  if (!pays || all.microbatches > 1 || pooling == at(end)) {
    segments.push_back(all);
    return;
  }
  const auto after_pooling = static_cast<std::size_t>(pooling - forward.begin()) + 1;
  segments.push_back(try_microbatches(graph, begin, after_pooling, graph.cache_bytes / small_cache_divisor));
  if (after_pooling < end) segments.push_back({after_pooling, end});
}

}  // namespace

std::vector<Segment> plan_segments(Graph& graph) {
  const std::vector<Operation>& forward = graph.forward;
  if (!graph.is_chain) return {{0, forward.size()}};  // a fork's tensor may be read in any later segment
  std::vector<Segment> segments;
  std::size_t length = 1;  // gather
  while (length < forward.size() && is_microbatchable(forward[length])) ++length;
  add_segments(graph, 0, length, segments);
  if (length < forward.size()) segments.push_back({length, forward.size()});
  // Only the pooling after a convolution reads the convolution's output, because the pooling's backward gets relu's
  // derivative from the argmaxes. So the output and its gradient need memory for one microbatch only, which stays in
  // the cache.
  for (const Segment& segment : segments) {
    for (std::size_t i = segment.begin; segment.microbatches > 1 && i + 1 < segment.end; ++i) {
      const Operation& operation = forward[i];
      const bool flat =
          operation.activation == ActivationFunction::relu || operation.activation == ActivationFunction::linear;
      const bool pooled = forward[i + 1].kind == OperationKind::max_pooling;
      if (operation.kind != OperationKind::convolution || !flat || !pooled) continue;
      graph.tensors[operation.output].microbatch_examples =
          (local_examples(graph) + segment.microbatches - 1) / segment.microbatches;
    }
  }
  return segments;
}

const Segment& segment_of(const std::vector<Segment>& segments, const Graph& graph, const Operation& backward) {
  const auto forward = std::ranges::find_if(
      graph.forward, [&](const Operation& operation) { return operation.output == backward.output; });
  const bool needs_whole_batch = backward.partial_sum || backward.all_to_all;
  if (needs_whole_batch || forward == graph.forward.end()) return segments.back();  // ends with the loss
  const auto index = static_cast<std::size_t>(forward - graph.forward.begin());
  return *std::ranges::find_if(segments, [&](const Segment& segment) { return index < segment.end; });
}

}  // namespace lockstep
