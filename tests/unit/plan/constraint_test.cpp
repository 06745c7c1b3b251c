// The plan of a model with constraints: a norm needs all of a variable, so one rank updates it.
#include "backend/make_backend.hpp"
#include "graph/lower.hpp"
#include "plan/plan.hpp"
#include "support/catch.hpp"

#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <vector>

using namespace lockstep;

TEST_CASE("a variable with a constraint is in one bucket") {
  const Sequential model{Input({300}), Dense(500, {.kernel_constraint = MaxNorm(), .bias_constraint = NonNeg()}),
                         Dense(400), Dense(3)};
  Graph graph = lower(model, MeanSquaredError(), Precision::float32);
  make_cpu_backend(1)->lay_out(graph, 8);
  const Plan plan = make_plan(graph, {.chunk_bytes = 5000, .bucket_bytes = 3000});
  const std::vector<Range> ranges = plan.constrained_ranges();
  REQUIRE(ranges.size() == 2);
  for (const Range& range : ranges) {
    CHECK(std::ranges::count_if(plan.buckets, [&](const Range& bucket) {
            return bucket.begin <= range.begin && range.end <= bucket.end;
          }) == 1);
  }
  CHECK(plan.buckets.size() > 5);  // those of the layer without one are cut
}
