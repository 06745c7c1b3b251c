// Tests of which operation multiplies by the derivative of the first convolution's activation.
#include "checked_model.hpp"
#include "graph/lower.hpp"
#include "support/catch.hpp"

#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

/// The model's graph as the GPU computes it.
Graph graph_of(const Sequential& model) {
  Graph graph = lower(model, SparseCategoricalCrossentropy({.from_logits = true}), Precision::float32, {}, {});
  make_backend_under_test()->lay_out(graph, 8);
  return graph;
}

const Operation& last_of(const Graph& graph, OperationKind kind) {
  const auto found = std::find_if(graph.backward.rbegin(), graph.backward.rend(),
                                  [kind](const Operation& operation) { return operation.kind == kind; });
  REQUIRE(found != graph.backward.rend());
  return *found;
}

}  // namespace

TEST_CASE("the first convolution's backward takes over the derivative from a Dense layer") {
  const Graph graph = graph_of({Input({8, 8, 1}), Conv2D(4, 3, {.activation = relu}), Flatten(), Dense(3)});
  CHECK(last_of(graph, OperationKind::convolution_backward).derives_activation);
  CHECK(last_of(graph, OperationKind::dense_backward).input_activation == ActivationFunction::linear);
}

TEST_CASE("a pooling multiplies by the derivative on the way, and so keeps it") {
  const Graph graph =
      graph_of({Input({8, 8, 1}), Conv2D(4, 3, {.activation = relu}), MaxPooling2D(), Flatten(), Dense(3)});
  CHECK_FALSE(last_of(graph, OperationKind::convolution_backward).derives_activation);
  CHECK(last_of(graph, OperationKind::max_pooling_backward).input_activation == relu);
}

TEST_CASE("a convolution of several channels leaves the derivative to the layer after it") {
  const Graph graph = graph_of({Input({8, 8, 2}), Conv2D(4, 3, {.activation = relu}), Flatten(), Dense(3)});
  CHECK_FALSE(last_of(graph, OperationKind::convolution_backward).derives_activation);
  CHECK(last_of(graph, OperationKind::dense_backward).input_activation == relu);
}
