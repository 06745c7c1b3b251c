// Buffers that share memory: never those that are used together, and hardly more memory than they need at one time.
#include "backend/memory_plan.hpp"

#include "backend/tensor_uses.hpp"
#include "graph/lower.hpp"
#include "support/catch.hpp"

#include <lockstep/layers/functional.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

using namespace lockstep;

namespace {

/// The bytes in use at one time, at most.
std::size_t largest_sum(const std::vector<BufferUse>& uses, std::size_t operations) {
  std::size_t largest = 0;
  for (std::size_t at = 0; at < operations; ++at) {
    std::size_t sum = 0;
    for (const BufferUse& use : uses) sum += use.first <= at && at <= use.last ? use.bytes : 0;
    largest = std::max(largest, sum);
  }
  return largest;
}

void check_plan(const std::vector<BufferUse>& uses, const MemoryPlan& plan) {
  REQUIRE(plan.offsets.size() == uses.size());
  for (std::size_t a = 0; a < uses.size(); ++a) {
    CHECK(plan.offsets[a] % 64 == 0);
    CHECK(plan.offsets[a] + uses[a].bytes <= plan.bytes);
    for (std::size_t b = 0; b < a; ++b) {
      const bool together = uses[a].first <= uses[b].last && uses[b].first <= uses[a].last;
      const bool overlap =
          plan.offsets[a] < plan.offsets[b] + uses[b].bytes && plan.offsets[b] < plan.offsets[a] + uses[a].bytes;
      if (together && overlap) FAIL("buffers " << a << " and " << b << " overlap");
    }
  }
}

/// A step whose values are needed again in backward, and whose gradients are needed once.
std::vector<BufferUse> chain(std::size_t layers, std::size_t bytes) {
  std::vector<BufferUse> uses;
  for (std::size_t i = 0; i < layers; ++i) {
    const std::size_t backward = 2 * layers - 1 - i;
    uses.push_back({bytes, i, backward});
    uses.push_back({bytes, backward - 1, backward});
  }
  return uses;
}

Graph trained(const Architecture& model) {
  return lower(model, {.optimizer = SGD(), .loss = SparseCategoricalCrossentropy{.from_logits = true}},
               Precision::float32);
}

/// What the first operation of this kind writes.
TensorUses uses_of(const Graph& graph, OperationKind kind) {
  std::vector<Operation> operations = graph.forward;
  operations.insert(operations.end(), graph.backward.begin(), graph.backward.end());
  const std::vector<TensorUses> uses = find_tensor_uses(graph, operations);
  const auto found = std::ranges::find(graph.forward, kind, &Operation::kind);
  REQUIRE(found != graph.forward.end());
  return uses[static_cast<std::size_t>(found->output)];
}

}  // namespace

TEST_CASE("buffers that are used together do not overlap", "[memory_plan]") {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    std::vector<BufferUse> uses(60);
    for (BufferUse& use : uses) {
      use.bytes = random() % 5000;
      use.first = random() % 40;
      use.last = use.first + random() % (round + 1);
    }
    const MemoryPlan plan = plan_memory(uses);
    check_plan(uses, plan);
    CHECK(plan.bytes <= 2 * largest_sum(uses, 100) + 64 * uses.size());
  }
  CHECK(plan_memory({}).bytes == 0);
}

TEST_CASE("the gradients of a chain of layers share memory", "[memory_plan]") {
  constexpr std::size_t layers = 20;
  const std::vector<BufferUse> uses = chain(layers, 64);
  const MemoryPlan plan = plan_memory(uses);
  check_plan(uses, plan);
  CHECK(plan.bytes == 64 * (layers + 2));
}

TEST_CASE("values are used until backward has read them", "[memory_plan]") {
  const Graph graph = trained(Sequential{Input({8, 8, 2}), Conv2D(4, 3, {.use_bias = false}), BatchNormalization(),
                                         AveragePooling2D(2), Flatten(), Dense(3)});
  const std::size_t forward = graph.forward.size();
  // The normalization reads it in backward.
  CHECK(uses_of(graph, OperationKind::convolution).value->last >= forward);
  // Only the pooling reads it, in forward.
  CHECK(uses_of(graph, OperationKind::batch_normalization).value->last ==
        uses_of(graph, OperationKind::average_pooling).value->first);
  CHECK(uses_of(graph, OperationKind::batch_normalization).saved_for_backward->last >= forward);
  // The Dense layer's kernel has a gradient.
  CHECK(uses_of(graph, OperationKind::average_pooling).value->last >= forward);
  CHECK(uses_of(graph, OperationKind::average_pooling).gradient->first >= forward);
  // What the model predicts is read after the step.
  CHECK(uses_of(graph, OperationKind::dense).value->last == forward + graph.backward.size());
}

TEST_CASE("what a convolution reads of a normalization is recomputed", "[memory_plan]") {
  const Graph graph = trained(Sequential{Input({8, 8, 2}), Conv2D(4, 3), BatchNormalization(), ReLU(), Conv2D(4, 3),
                                         AveragePooling2D(2), Flatten(), Dense(3)});
  const TensorUses normalized = uses_of(graph, OperationKind::batch_normalization);
  REQUIRE(normalized.recomputed_by);
  CHECK(graph.forward[*normalized.recomputed_by].kind == OperationKind::batch_normalization);
  CHECK(normalized.value->last < graph.forward.size());
  CHECK(uses_of(graph, OperationKind::convolution).value->last >= graph.forward.size());  // recomputed from it
}

TEST_CASE("a normalized value is kept where more than convolutions read it, or the model predicts it",
          "[memory_plan]") {
  const auto is_recomputed = [](const Architecture& model) {
    return uses_of(trained(model), OperationKind::batch_normalization).recomputed_by.has_value();
  };
  const Tensor x = Input({8, 8, 2});
  const Tensor y = ReLU()(BatchNormalization()(Conv2D(2, 3, {.padding = Padding::same})(x)));
  const auto head = [](const Tensor& tensor) { return Dense(3)(Flatten()(tensor)); };
  const Tensor convolved = Conv2D(2, 3, {.padding = Padding::same})(y);
  CHECK(is_recomputed(Functional(x, head(convolved))));
  CHECK_FALSE(is_recomputed(Functional(x, head(Add()({convolved, y})))));  // its backward computes ReLU's derivative
  CHECK_FALSE(is_recomputed(Functional(x, head(y))));
  CHECK_FALSE(is_recomputed(Functional(x, head(BatchNormalization()(y)))));
}
