// Readable descriptions of the sharding that a backup was made with.
#include "parallel/describe_sharding.hpp"

#include "graph/lower.hpp"
#include "support/catch.hpp"

#include <lockstep/layers/sequential.hpp>

#include <string>

using namespace lockstep;

TEST_CASE("a stored sharding is described by its weighted layers and an unknown one is not guessed") {
  const Sequential model{Input({28, 28, 1}), Conv2D(32, 3), Flatten(), Dense(128, {.activation = relu}), Dense(10)};
  const Graph graph = lower(model, SparseCategoricalCrossentropy({.from_logits = true}), Precision::float32);
  CHECK(describe_sharding("data", graph, 1) == "1 worker, data parallel");
  CHECK(describe_sharding("data", graph, 3) == "3 workers, data parallel");
  CHECK(describe_sharding("replicated aaaaa", graph, 3) == "3 workers, replicated");
  CHECK(describe_sharding("tensor acraa", graph, 2) ==
        "2 workers, tensor parallel: conv2d column-parallel, dense row-parallel, dense_1 replicated");
  const Sequential chain{Input({9, 9, 1}), Conv2D(8, 3), Conv2D(4, 3), Flatten(), Dense(10)};
  CHECK(describe_sharding("tensor acraa", lower(chain, SparseCategoricalCrossentropy(), Precision::float32), 2) ==
        "2 workers, tensor parallel: conv2d column-parallel, conv2d_1 row-parallel, dense replicated");
  for (const std::string code : {"zzz", "", "a"}) {
    CAPTURE(code);
    CHECK(describe_sharding("tensor " + code, graph, 2) ==
          "2 workers, tensor parallel (sharding unknown to this version)");
  }
}
