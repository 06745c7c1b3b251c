// The cost model: link times, the traffic of layers, timed kernels, and the simulation of a step.
#include "parallel/cost_model.hpp"

#include "parallel/measure_kernels.hpp"
#include "parallel/sharding.hpp"
#include "parallel/sharding_table.hpp"
#include "sharding_models.hpp"

#include "backend/make_backend.hpp"
#include "graph/work.hpp"
#include "plan/plan.hpp"
#include "support/catch.hpp"

#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing::sharding;

static double all_reduced_bytes(const Plan& plan) {
  std::size_t elements = 0;
  for (const Range& bucket : plan.buckets) elements += bucket.end - bucket.begin;
  return static_cast<double>(elements * sizeof(float));
}

TEST_CASE("link times interpolate and extrapolate the measured points") {
  const LinkModel link({{100, 1.0}, {200, 2.0}, {400, 3.0}});
  CHECK(link.all_reduce_seconds(10) == Approx(1.0));
  CHECK(link.all_reduce_seconds(100) == Approx(1.0));
  CHECK(link.all_reduce_seconds(150) == Approx(1.5));
  CHECK(link.all_reduce_seconds(300) == Approx(2.5));
  CHECK(link.all_reduce_seconds(1000) == Approx(6.0));
  CHECK(link.occupied_seconds(100) == Approx(0.5));  // extrapolates from the last two points
  const LinkModel described(1e-3, 1e6, 4);           // 2 (n - 1) / n of the bytes, in four rounds
  CHECK(described.all_reduce_seconds(1e6) == Approx(4e-3 + 1.5));
  CHECK(described.hardware_model(4).bytes_per_second == Approx(1e6));
}

TEST_CASE("the traffic of each layer matches the plan") {
  const auto backend = make_cpu_backend(1);
  constexpr std::size_t batch = 64;
  for (const Sequential& model : {keras_mnist, custom_training_mnist, deep_convolutions, wide_end}) {
    const Graph whole = graph_of(model);
    for (const int ranks : {2, 3, 8}) {
      const double sent = 2.0 * (ranks - 1) / ranks;
      for (const HardwareModel& hardware : {free_link, fast_link, ordinary_link, slow_link}) {
        const auto sharding = search_sharding(whole, ranks, batch, hardware);
        REQUIRE(sharding);
        double reported = 0;
        for (const LayerSharding& row : layer_shardings(whole, sharding, ranks, batch)) reported += row.bytes_a_step;
        double exchanged = 0;  // average over the ranks, whose shards differ in size
        Plan plan;
        for (int rank = ranks; rank-- > 0;) {
          plan = make_plan(shard_graph(whole, *sharding, rank, batch, *backend));
          for (const AllToAllSpec& exchange : plan.graph.all_to_alls) {
            exchanged += static_cast<double>(all_to_all_bytes_sent(exchange, rank)) / ranks;
          }
        }
        // Metrics and the padding of cache lines belong to no layer.
        const double summed = sent * all_reduced_bytes(plan);
        CHECK(reported == Approx(summed + exchanged).epsilon(3e-3).margin(sent * 4 * 64));
      }
      double reported = 0;
      for (const LayerSharding& row : layer_shardings(whole, {}, ranks, batch)) reported += row.bytes_a_step;
      Graph laid_out = whole;
      backend->lay_out(laid_out, batch);
      const Plan plan = make_plan(std::move(laid_out));
      CHECK(reported == Approx(sent * all_reduced_bytes(plan)).margin(sent * 4 * 64));
    }
  }
}

TEST_CASE("a layer with a softmax of its own has one row") {
  const Sequential with{Input({6}), Dense(8, {.activation = relu}), Dense(4, {.activation = "softmax"})};
  const Sequential without{Input({6}), Dense(8, {.activation = relu}), Dense(4)};
  for (const bool is_sharded : {false, true}) {
    const auto rows_of = [&](const Sequential& model) {
      const Graph whole = graph_of(model);
      return layer_shardings(whole, is_sharded ? search_sharding(whole, 2, 64, free_link) : std::nullopt, 2, 64);
    };
    const std::vector<LayerSharding> rows = rows_of(with);
    const std::vector<LayerSharding> expected = rows_of(without);
    REQUIRE(rows.size() == 2);
    CHECK(rows.back().how == expected.back().how);
    CHECK(rows.back().bytes_a_step == expected.back().bytes_a_step);
  }
}

TEST_CASE("the kernels of a plan can be timed without other ranks") {
  const auto backend = make_cpu_backend(1);
  const Graph whole_graph = graph_of(custom_training_mnist);
  const Graph narrow =
      graph_of(Sequential{Input({14, 14, 1}), Conv2D(2, 3), Conv2D(8, 3), GlobalAveragePooling2D(), Dense(10)});
  for (const auto& [whole, rank] : {std::pair(whole_graph, 0), std::pair(whole_graph, 2), std::pair(narrow, 0),
                                    std::pair(narrow, 2)}) {  // with two channels, rank 2 has none
    const auto sharding = search_sharding(whole, 3, 32, slow_link);
    REQUIRE(sharding);
    const Plan plan = make_plan(shard_graph(whole, *sharding, rank, 32, *backend));
    const std::vector<double> seconds = measure_kernels(*backend, plan, Adam(), 32, 1, 3);
    REQUIRE(seconds.size() == plan.training.size());
    double sum = 0;
    for (const double each : seconds) sum += each;
    CHECK(sum > 0);
    CHECK(sum < 10);
    const LinkModel nothing({{0, 0.0}, {1, 0.0}});
    CHECK(simulate_step(plan, seconds, nothing) == Approx(sum).epsilon(0.01).margin(1e-5));
  }
}

TEST_CASE("an update with a constraint is timed on whole variables, as one rank of a host makes it") {
  const auto backend = make_cpu_backend(1);
  const Constraint max_norm = MaxNorm(0.5);
  for (const Sequential& model :
       {Sequential{Input({6, 6, 2}), Conv2D(16, 3, {.kernel_constraint = max_norm}), Flatten(), Dense(3)},
        Sequential{Input({40}), Dense(50, {.kernel_constraint = NonNeg()}), Dense(3, {.kernel_constraint = max_norm})},
        Sequential{Input({4}), Embedding(90, 8, {.embeddings_constraint = UnitNorm()}), Flatten(), Dense(3)}}) {
    Graph graph = graph_of(model);
    backend->lay_out(graph, 8);
    const Plan plan = make_plan(std::move(graph));
    CHECK(measure_kernels(*backend, plan, SGD{}, 8, 2, 2).size() == plan.training.size());
  }
}

TEST_CASE("the kernels of layers that read indices are timed on valid ones") {
  const auto backend = make_cpu_backend(1);
  for (const OutputMode mode : {OutputMode::multi_hot, OutputMode::count}) {
    const Sequential model{Input({6}), CategoryEncoding(11, {.output_mode = mode}), Dense(2)};
    Graph graph = graph_of(model);
    backend->lay_out(graph, 13);
    const Plan plan = make_plan(std::move(graph));
    CHECK(measure_kernels(*backend, plan, SGD{}, 13, 1, 1).size() == plan.training.size());
  }
}

TEST_CASE("rows of an Embedding that no example reads are expected not to travel") {
  const Sequential model{Input({20}), Embedding(10000, 8), Flatten(), Dense(2)};
  Graph graph = graph_of(model);
  make_cpu_backend(1)->lay_out(graph, 4);
  const Operation& embedding = *std::ranges::find(graph.forward, OperationKind::embedding, &Operation::kind);
  CHECK(expected_part_of_rows(graph, embedding, 4) > 0);
  CHECK(expected_part_of_rows(graph, embedding, 4) < 80.0 / 10000);  // at most a row for each index
  CHECK(expected_part_of_rows(graph, embedding, 1e9) == Approx(1));
  const Plan plan = make_plan(std::move(graph));
  const std::vector<double> nothing(plan.training.size());
  const double seconds = simulate_step(plan, nothing, LinkModel({{0, 0.0}, {1, 1.0}}));  // a second for each byte
  CHECK(seconds > 0);
  CHECK(seconds < 0.05 * all_reduced_bytes(plan));
}

TEST_CASE("reductions overlap with operations, one at a time") {
  Plan plan;
  plan.buckets = {{0, 25}, {25, 50}, {50, 75}};  // of 100 bytes
  plan.training = {Compute{0}, MarkReady{0}, Compute{1}, MarkReady{1}, Update{0},
                   Compute{2}, MarkReady{2}, Update{1},  Update{2}};
  const std::vector<double> seconds{2, 0, 2, 0, 1, 2, 0, 1, 1};
  const auto with = [&](double latency, double per_byte) {
    return simulate_step(plan, seconds, LinkModel({{0, latency}, {100, latency + 100 * per_byte}}));
  };
  CHECK(with(0, 0) == Approx(9));
  CHECK(with(0, 0.01) == Approx(9));   // the last reduction completes during the previous update
  CHECK(with(3, 0) == Approx(11));     // ready at 2, 4 and 7: the last reduction completes at 10
  CHECK(with(0, 0.10) == Approx(33));  // 2 + 3 * 10, and the last update
  // Each takes 13, but several are in flight at once: ready at 2, 4 and 6, the last completes at 19.
  CHECK(simulate_step(plan, seconds, LinkModel({{0, 3.0}, {100, 13.0}, {200, 13.0}})) == Approx(20));
  plan.training.insert(plan.training.begin() + 5, WaitUpdated{0});
  const std::vector<double> waiting{2, 0, 2, 0, 1, 0, 2, 0, 1, 1};
  CHECK(simulate_step(plan, waiting, LinkModel({{0, 0.0}, {100, 10.0}})) == Approx(33));
}
