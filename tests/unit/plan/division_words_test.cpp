// What a person reads of the division that a backup was made with.
#include "plan/division_words.hpp"

#include "plan/lower.hpp"
#include "support/catch.hpp"

#include <string>

using namespace lockstep;

TEST_CASE("a kept division is told by layers with weights, and one that nobody knows is not guessed at") {
  const Sequential model{Input({28, 28, 1}), Conv2D(32, 3), Flatten(), Dense(128, {.activation = relu}), Dense(10)};
  const Graph graph = lower(model, SparseCategoricalCrossentropy({.from_logits = true}), false);
  CHECK(division_in_words("examples", graph, 1) == "1 worker, by examples");
  CHECK(division_in_words("examples", graph, 3) == "3 workers, by examples");
  CHECK(division_in_words("none aaaaa", graph, 3) == "3 workers, each of which computes all");
  CHECK(division_in_words("features acraa", graph, 2) ==
        "2 workers, by features: conv2d by channels, dense by input channels, dense_1 whole");
  const Sequential chain{Input({9, 9, 1}), Conv2D(8, 3), Conv2D(4, 3), Flatten(), Dense(10)};
  CHECK(division_in_words("features acraa", lower(chain, SparseCategoricalCrossentropy(), false), 2) ==
        "2 workers, by features: conv2d by channels, conv2d_1 by input channels, dense whole");
  for (const std::string code : {"zzz", "", "a"}) {
    CAPTURE(code);
    CHECK(division_in_words("features " + code, graph, 2) ==
          "2 workers, by features, in a way that this version does not know");
  }
}
