// A rank's shard of a model: its parameters, its exchanges with other ranks, and its plan.
#include "parallel/sharding.hpp"

#include "sharding_models.hpp"

#include "backend/cpu/instruction_set.hpp"
#include "backend/make_backend.hpp"
#include "plan/plan.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"

#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing::sharding;
using lockstep::testing::contains;

TEST_CASE("a row-parallel convolution shards its kernel by input channels and replicates its bias") {
  const auto backend = make_cpu_backend(1);
  const auto check = [&](std::int64_t channels, int filters, int ranks) {
    const Sequential model{Input({9, 9, 1}), Conv2D(static_cast<int>(channels), 2),
                           MaxPooling2D(),   Conv2D(filters, Size2D(2, 3), {.activation = relu}),
                           Flatten(),        Dense(3)};
    const Graph whole = graph_of(model);
    const auto sharding = sharding_from_code(whole, ranks, "accraa");
    REQUIRE(sharding);
    INFO(channels << " channels, " << ranks << " ranks");
    constexpr std::size_t kernel = 2;
    CHECK(sharding->variables[kernel].outer == 6);
    CHECK(sharding->variables[kernel].length == channels);
    CHECK(sharding->variables[kernel].inner == filters);
    CHECK(sharding->variables[kernel + 1].length == 0);
    std::int64_t held = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Graph part = shard_graph(whole, *sharding, rank, 10, *backend);
      const ParameterSpec& mine = part.parameters[kernel];
      CHECK(mine.info.shape == Shape{2, 3, channels_of(channels, rank, ranks).size(), filters});
      CHECK(mine.is_local);
      CHECK(mine.is_sharded);
      held += mine.info.shape[2];
      const ParameterSpec& bias = part.parameters[kernel + 1];
      CHECK(bias.info.shape == Shape{filters});
      CHECK(bias.is_local);
      CHECK_FALSE(bias.is_sharded);
      CHECK(part.parameters.back().info.shape == Shape{10 * 3 * 2 * filters});
      CHECK(part.partial_sums == 1);
      const std::string plan = make_plan(part).to_string();
      INFO(plan);
      CHECK(contains(plan, "mark_ready"));
      CHECK(plan.find("convolution conv2d_1") < plan.find("finish_partial_sum conv2d_1"));
    }
    CHECK(held == channels);
  };
  for (const int ranks : {2, 3, 4}) {
    for (const std::int64_t channels : {2, 5, 7, 24, 32}) {
      for (const int filters : {5, 16}) check(channels, filters, ranks);
    }
  }
}

TEST_CASE("microbatched convolutions end before a sum over the whole batch") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(Sequential{Input({48, 48, 1}), Conv2D(64, 3, {.activation = relu}), MaxPooling2D(),
                                          Conv2D(8, 3), MaxPooling2D(), Flatten(), Dense(4)});
  const auto sharding = sharding_from_code(whole, 2, "accraaa");
  REQUIRE(sharding);
  const Plan plan = make_plan(shard_graph(whole, *sharding, 1, 73, *backend));
  int slices = 1;
  int summing = 0;
  for (const Operation& operation : plan.compute) {
    slices = std::max(slices, static_cast<int>(operation.microbatch.count));
    const bool sums = operation.kind == OperationKind::convolution && operation.partial_sum.has_value();
    if (sums) CHECK(operation.microbatch.count == 1);
    summing += sums ? 1 : 0;
  }
  CHECK(slices > 4);
  CHECK(summing == 1);
}

TEST_CASE("all-to-all sends and receives match, and gradients mirror values") {
  const auto backend = make_cpu_backend(1);
  Graph whole = graph_of(deep_convolutions);
  const auto sharding = sharding_from_code(whole, 3, "eeeeeeeeraa");
  REQUIRE(sharding);
  for (const std::size_t replicas : {0, 3, 5}) {
    whole.batch_norm_replicas = replicas;
    std::vector<Graph> parts;
    for (int rank = 0; rank < 3; ++rank) parts.push_back(shard_graph(whole, *sharding, rank, 37, *backend));
    std::size_t rows = 0;
    for (std::size_t me = 0; me < 3; ++me) {
      REQUIRE(parts[me].all_to_alls.size() == 2);
      const auto& [values, gradients] = std::tie(parts[me].all_to_alls[0], parts[me].all_to_alls[1]);
      const std::size_t mine = parts[me].examples_of(37, static_cast<int>(me)).size();
      rows += mine;
      for (std::size_t other = 0; other < 3; ++other) {
        CHECK(values.send_counts[other] == mine * 36 * static_cast<std::size_t>(values.channels[other]));
        CHECK(values.send_counts[other] == parts[other].all_to_alls[0].receive_counts[me]);
        CHECK(values.send_counts[other] == gradients.receive_counts[other]);
        CHECK(values.receive_counts[other] == gradients.send_counts[other]);
      }
      const std::string plan = make_plan(parts[me]).to_string();
      INFO(plan);
      for (const char* line :
           {"pack_all_to_all dense t7 batch-split all-to-all 0\nstart_all_to_all all-to-all 0\nfinish_all_to_all "
            "all-to-all 0\nunpack_all_to_all dense",
            "batch-split",
            "all-to-all 1\nstart_all_to_all all-to-all 1\nfinish_all_to_all all-to-all 1\nunpack_all_to_all"}) {
        INFO(line);
        CHECK(contains(plan, line));
      }
    }
    CHECK(rows == 37);
  }
}

TEST_CASE("convolutions after data-parallel layers receive their preferred layout") {
  const auto backend = make_cpu_backend(1);
  for (const auto& [filters, block] : {std::pair(64, 16), std::pair(24, 8), std::pair(7, 3)}) {
    const Graph whole = graph_of(Sequential{Input({12, 12, 1}), Conv2D(filters, 3, {.activation = relu}),
                                            MaxPooling2D(), Conv2D(32, 3), Flatten(), Dense(4)});
    const auto sharding = sharding_from_code(whole, 2, "eeeraa");
    REQUIRE(sharding);
    const Graph part = shard_graph(whole, *sharding, 1, 21, *backend);
    const auto is_unpack = [](const Operation& operation) {
      return operation.kind == OperationKind::unpack_all_to_all;
    };
    const auto unpack = std::find_if(part.forward.begin(), part.forward.end(), is_unpack);
    REQUIRE(unpack != part.forward.end());
    const TensorSpec& taken = part.tensors[static_cast<std::size_t>(unpack->output)];
    CHECK(taken.whole_channels == filters);
    CHECK(taken.channels == channels_of(filters, 1, 2).size());
    const int widest = instruction_set_in_use() >= InstructionSet::avx512 ? 16 : 8;
    // Some CPU's kernels prefer Keras' order.
    CHECK(taken.block() == (taken.layout == Layout::nhwc ? taken.channels : std::min(block, widest)));
    const std::string plan = make_plan(part).to_string();
    INFO(plan);
    for (const char* line :
         {"start_all_to_all all-to-all 0\nfinish_all_to_all all-to-all 0\nunpack_all_to_all conv2d_1",
          "start_all_to_all all-to-all 1\nfinish_all_to_all all-to-all 1"}) {
      CHECK(contains(plan, line));
    }
  }
  const Sequential convolutions_before_wide_end{Input({32, 32, 1}), Conv2D(32, 3, {.activation = relu}),
                                                MaxPooling2D(),     Conv2D(128, 3, {.activation = relu}),
                                                MaxPooling2D(),     Conv2D(1024, 3, {.strides = 3, .activation = relu}),
                                                Conv2D(1024, 2),    GlobalAveragePooling2D(),
                                                Dense(10)};
  CHECK(splits_of(convolutions_before_wide_end, {.latency = 5e-5, .bytes_per_second = 1.25e9}, 4) == "eeeee-||-=");
}

TEST_CASE("data-parallel leading layers run in microbatches and start backward when their gradient arrives") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(Sequential{Input({48, 48, 1}), Conv2D(64, 3, {.activation = relu}), MaxPooling2D(),
                                          Conv2D(8, 3), Flatten(), Dense(20), Dense(4)});
  const auto sharding = sharding_from_code(whole, 2, "eeeeraa");
  REQUIRE(sharding);
  const Plan plan = make_plan(shard_graph(whole, *sharding, 1, 73, *backend));
  std::vector<std::size_t> started;
  int slices = 1;
  for (const PlanStep& step : plan.training) {
    if (const auto* start = std::get_if<StartAllToAll>(&step)) started.push_back(start->all_to_all);
    if (plan.operation_of(step) == nullptr) continue;
    const Operation& operation = *plan.operation_of(step);
    if (operation.kind == OperationKind::convolution)
      slices = std::max(slices, static_cast<int>(operation.microbatch.count));
    if (operation.kind == OperationKind::unpack_all_to_all) CHECK(started.back() == operation.all_to_all);
    if (operation.kind == OperationKind::convolution_backward) CHECK(started == std::vector<std::size_t>{0, 1});
  }
  CHECK(slices > 4);
  CHECK(plan.graph.tensors[1].microbatch_examples ==
        (36U + static_cast<unsigned>(slices) - 1) / static_cast<unsigned>(slices));
}

TEST_CASE("channels are sharded in blocks of sixteen, eight or one, completely and in order") {
  CHECK(channels_of(64, 0, 2).size() == 32);
  CHECK(channels_of(48, 0, 2).size() == 32);
  CHECK(channels_of(24, 0, 2).size() == 16);
  CHECK(channels_of(24, 1, 2).size() == 8);
  CHECK(channels_of(10, 0, 4).size() == 3);
  CHECK(channels_of(2, 3, 4).size() == 0);
  for (const std::int64_t count : {1, 2, 7, 8, 10, 16, 33, 40, 64, 500}) {
    for (const int ranks : {1, 2, 3, 4, 7, 16}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const ChannelRange mine = channels_of(count, rank, ranks);
        CHECK(mine.begin == next);
        CHECK(mine.size() >= 0);
        CHECK(mine.size() <= channels_of(count, 0, ranks).size());
        CHECK(mine.size() >= channels_of(count, ranks - 1, ranks).size());
        next = mine.end;
      }
      CHECK(next == count);
    }
  }
}

TEST_CASE("a rank's shard holds its slices and the plans of all ranks agree") {
  const auto backend = make_cpu_backend(1);
  for (const Sequential& model : {keras_mnist, custom_training_mnist, wide_end}) {
    for (const HardwareModel& hardware : {free_link, fast_link, ordinary_link, slow_link}) {
      const Graph whole = graph_of(model);
      for (const int ranks : {2, 3, 5, 40}) {
        const auto sharding = search_sharding(whole, ranks, 32, hardware);
        REQUIRE(sharding);
        std::vector<std::int64_t> held(static_cast<std::size_t>(whole.metrics_parameter()), 0);
        std::string digest;
        for (int rank = 0; rank < ranks; ++rank) {
          Graph part = shard_graph(whole, *sharding, rank, 32, *backend);
          for (std::size_t p = 0; p < held.size(); ++p) held[p] += part.parameters[p].info.shape.elements();
          Plan plan = make_plan(std::move(part));
          plan.sharding = sharding->to_string(whole);
          if (rank == 0) digest = plan.digest();
          CHECK(plan.digest() == digest);
          CHECK(plan.buckets[plan.metrics_bucket].begin <=
                plan.graph.parameters[static_cast<std::size_t>(plan.graph.metrics_parameter())].offset);
        }
        for (std::size_t p = 0; p < held.size(); ++p) {
          const std::int64_t all = whole.parameters[p].info.shape.elements();
          CHECK(held[p] == (sharding->variables[p].length > 0 ? all : all * ranks));
        }
      }
    }
  }
}

TEST_CASE("a replicated model reduces only metrics, overlapped with backward") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(keras_mnist);
  const Plan plan = make_plan(shard_graph(whole, replicate_all(whole, 2, 32, ordinary_link), 0, 32, *backend));
  CHECK(plan.buckets.size() == 1);
  const auto place = [&](OperationKind kind) {
    return std::find_if(plan.training.begin(), plan.training.end(), [&](const PlanStep& step) {
      const Operation* operation = plan.operation_of(step);
      return operation != nullptr && operation->kind == kind;
    });
  };
  const auto ready = std::find_if(plan.training.begin(), plan.training.end(),
                                  [](const PlanStep& step) { return std::holds_alternative<MarkReady>(step); });
  CHECK(place(OperationKind::loss) < ready);
  CHECK(ready < place(OperationKind::dense_backward));
}

TEST_CASE("ranks that know the whole batch's metrics reduce them rarely, less often for shorter steps") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(keras_mnist);
  const auto every = [&](const Sharding& sharding, std::size_t batch) {
    return make_plan(shard_graph(whole, sharding, 1, batch, *backend)).metrics_interval;
  };
  const auto nothing = [&](std::size_t batch) { return replicate_all(whole, 2, batch, ordinary_link); };
  CHECK(every(nothing(1), 1) == 256);
  CHECK(every(nothing(128), 128) < 20);
  CHECK(every(*search_sharding(whole, 2, 128, ordinary_link), 128) == every(nothing(128), 128));
  CHECK(every(nothing(4096), 4096) == 1);

  // Layers without multiplications take time, too.
  const Graph pooled = graph_of(Sequential{Input({512, 512, 4}), MaxPooling2D(8), Flatten(), Dense(2)});
  CHECK(
      make_plan(shard_graph(pooled, replicate_all(pooled, 2, 128, ordinary_link), 1, 128, *backend)).metrics_interval <
      5);

  Graph mirrored = whole;
  backend->lay_out(mirrored, 32);
  CHECK(make_plan(mirrored).metrics_interval == 1);
}

TEST_CASE("a step without metric reduction runs all operations except that reduction") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(keras_mnist);
  const auto sharding = search_sharding(whole, 2, 128, ordinary_link);
  REQUIRE(sharding);
  const Plan plan = make_plan(shard_graph(whole, *sharding, 1, 128, *backend));
  REQUIRE(plan.metrics_interval > 1);
  const std::vector<std::size_t> all = plan.places_of_step(true);
  const std::vector<std::size_t> without = plan.places_of_step(false);
  CHECK(all.size() == plan.training.size());
  CHECK(std::is_sorted(without.begin(), without.end()));
  std::vector<std::size_t> left_out;  // which alternatives of PlanStep
  for (const std::size_t i : all) {
    if (std::binary_search(without.begin(), without.end(), i)) continue;
    const PlanStep& step = plan.training[i];
    left_out.push_back(step.index());
    CHECK((is_step_of<WaitUpdated>(step, plan.metrics_bucket) || is_step_of<MarkReady>(step, plan.metrics_bucket) ||
           is_step_of<Update>(step, plan.metrics_bucket)));
  }
  CHECK(left_out ==
        std::vector{PlanStep(WaitUpdated{}).index(), PlanStep(MarkReady{}).index(), PlanStep(Update{}).index()});
}
