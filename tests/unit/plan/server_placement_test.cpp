// Every element of a plan's buckets is on one server, whatever the placement.
#include "plan/server_placement.hpp"

#include "backend/make_backend.hpp"
#include "graph/lower.hpp"
#include "support/catch.hpp"
#include "support/models.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

Plan plan_of(const Architecture& architecture) {
  const auto backend = make_cpu_backend(1);
  CompileOptions options;
  options.loss = SparseCategoricalCrossentropy({.from_logits = true});
  Graph graph = lower(architecture, options, Precision::automatic, std::nullopt);
  backend->lay_out(graph, 8);
  return make_plan(std::move(graph));
}

Plan plan_of_dense() {
  return plan_of(Sequential{Input({300}), Dense(200, {.activation = relu}), Dense(70), Dense(10)});
}

std::size_t held_by(const std::vector<ServerShard>& shards, std::size_t server) {
  std::size_t elements = 0;
  for (const ServerShard& shard : shards) elements += shard.server == server ? shard.range.size() : 0;
  return elements;
}

}  // namespace

TEST_CASE("each element of a bucket is on one server, and shards begin on a cache line") {
  for (const Plan& plan : {plan_of_dense(), plan_of(testing::partly_frozen())}) {
    for (const std::string text :
         {"round-robin", "greedy", "partitioned", "fixed-shards:3", "min-size:4096", "max-size:1000"}) {
      for (const std::size_t servers : {1, 2, 5}) {
        INFO(text << " on " << servers);
        const std::vector<ServerShard> shards =
            place_on_servers(plan, servers, parse_server_placement(text, "--ps-placement"));
        auto shard = shards.begin();
        for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
          std::size_t at = plan.buckets[bucket].begin;
          for (; shard != shards.end() && shard->bucket == bucket; ++shard) {
            CHECK(shard->range.begin == at);
            CHECK(shard->range.begin % cache_line_elements == 0);
            CHECK(shard->server < servers);
            at = shard->range.end;
          }
          CHECK(at == plan.buckets[bucket].end);
        }
        CHECK(shard == shards.end());
      }
    }
  }
}

TEST_CASE("placements balance as TensorFlow's do") {
  const Plan plan = plan_of_dense();
  const auto shards_of = [&](const std::string& text) {
    return place_on_servers(plan, 2, parse_server_placement(text, "--ps-placement"));
  };
  // In turn: kernel, bias, kernel, bias, kernel, bias, metrics; so one server has all kernels.
  const auto in_turn = shards_of("round-robin");
  CHECK(held_by(in_turn, 1) < 400);
  // The first kernel is larger than everything else together.
  const auto greedy = shards_of("greedy");
  CHECK(held_by(greedy, 0) == 300 * 200);
  const auto halves = shards_of("fixed-shards:2");
  const auto difference =
      static_cast<std::ptrdiff_t>(held_by(halves, 0)) - static_cast<std::ptrdiff_t>(held_by(halves, 1));
  CHECK(std::abs(difference) < 400);
}

TEST_CASE("a constrained weight stays whole") {
  const Plan plan = plan_of(Sequential{Input({300}), Dense(200, {.kernel_constraint = MaxNorm(1)}), Dense(10)});
  const auto kernel =
      std::ranges::find_if(plan.graph.parameters, [](const auto& each) { return each.is_constrained(); });
  const auto shards = place_on_servers(plan, 3, parse_server_placement("max-size:64", "--ps-placement"));
  CHECK(std::ranges::any_of(shards, [&](const ServerShard& shard) {
    return shard.range.begin <= kernel->offset && kernel->offset + kernel->storage <= shard.range.end;
  }));
}

TEST_CASE("a server's plan only updates what it holds") {
  const Plan plan = server_plan(plan_of_dense(), {{0, 16}, {64, 128}});
  CHECK(plan.compute.empty());
  CHECK(plan.training.size() == 2);
  CHECK(is_step_of<Update>(plan.training[1], 1));
}

TEST_CASE("what is no placement is refused") {
  for (const std::string text : {"", "anywhere", "fixed-shards", "fixed-shards:0", "max-size:-1", "min-size:1x"}) {
    CHECK_THROWS_AS(parse_server_placement(text, "--ps-placement"), UsageError);
  }
}

TEST_CASE("a description names each server's variables") {
  const Plan plan = plan_of_dense();
  const auto shards = place_on_servers(plan, 2, parse_server_placement("fixed-shards:2", "--ps-placement"));
  const std::string text = describe_servers(plan, shards, 2);
  CHECK(text.find("ps 1: ") != std::string::npos);
  CHECK(text.find("of 240000 bytes") != std::string::npos);
}
