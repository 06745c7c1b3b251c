// Which divisions by features are found, what a rank's part of a model is, and what cannot be divided.
#include "plan/division.hpp"

#include "plan/cost.hpp"
#include "plan/division_table.hpp"
#include "plan/kernel_times.hpp"

#include "backend/make_backend.hpp"
#include "plan/lower.hpp"
#include "plan/plan.hpp"
#include "support/catch.hpp"
#include "support/messages.hpp"
#include "support/models.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace lockstep;
using lockstep::testing::contains;

namespace {

const SparseCategoricalCrossentropy logits({.from_logits = true});

const Sequential keras_mnist = testing::keras_mnist();
const Sequential custom_training_mnist = testing::custom_training_mnist();

/// A link that costs nothing, a fast and an ordinary one, and one that is to be spared.
const Speeds free_link{.latency = 0, .bytes_per_second = 1e15, .flops_per_second = 1e9};
const Speeds fast_link{.latency = 1e-6, .bytes_per_second = 1e9, .flops_per_second = 1e10};
const Speeds ordinary_link{.latency = 1e-4, .bytes_per_second = 1.25e8, .flops_per_second = 1e11};
const Speeds slow_link{.latency = 1e-3, .bytes_per_second = 1e4, .flops_per_second = 1e13};

Graph graph_of(const Sequential& model) { return lower(model, logits, false); }

std::string ways_of(const Sequential& model, const Speeds& speeds, int ranks = 2) {
  const auto division = divide_by_features(graph_of(model), ranks, 128, speeds);
  if (!division) return "none";
  std::string text;
  for (const Way way : division->ways) text += "=~|-e"[static_cast<std::size_t>(way)];
  return text;
}

std::string why_not(const Sequential& model) {
  const Graph graph = graph_of(model);
  CHECK_FALSE(divide_by_features(graph, 2, 128, {}));
  return why_not_by_features(graph);
}

}  // namespace

const Sequential deep_trunk{Input({32, 32, 3}),
                            Conv2D(64, 3, {.activation = relu}),
                            BatchNormalization(),
                            Conv2D(64, 3, {.activation = relu}),
                            MaxPooling2D(),
                            Conv2D(64, 3, {.activation = relu}),
                            MaxPooling2D(),
                            Flatten(),
                            Dropout(0.5),
                            Dense(1024, {.activation = relu}),
                            Dense(10)};

/// Its last convolutions have many weights and few outputs.
const Sequential wide_end{Input({16, 16, 16}),
                          Conv2D(64, 3, {.activation = relu}),
                          Conv2D(256, 3, {.strides = 2, .activation = relu}),
                          BatchNormalization(),
                          Conv2D(256, 3, {.strides = 2, .activation = relu}),
                          GlobalAveragePooling2D(),
                          Dense(10)};

// = repeated, ~ repeated with a part of the gradient, | columns, - rows, e by examples; gather first, the loss last.
TEST_CASE("The cheapest division follows from what the link costs") {
  CHECK(ways_of(keras_mnist, free_link) == "eee-=");
  CHECK(ways_of(keras_mnist, fast_link) == "=|-==");
  CHECK(ways_of(keras_mnist, slow_link) == "=~|-=");
  CHECK(ways_of(custom_training_mnist, free_link) == "eeeeee-=");
  CHECK(ways_of(custom_training_mnist, ordinary_link) == "=~~||-==");
  const Sequential chain{Input({64}),
                         Dense(512, {.activation = relu}),
                         Dense(512, {.activation = relu}),
                         Dense(512, {.activation = relu}),
                         Dense(512, {.activation = relu}),
                         Dense(10)};
  CHECK(ways_of(chain, fast_link) == "=|-|-==");
}

TEST_CASE("A trunk that computes much goes by examples, the large layer behind it by features") {
  CHECK(ways_of(deep_trunk, ordinary_link) == "eeeeeeee-==");
  CHECK(ways_of(deep_trunk, ordinary_link, 8) == "eeeeeeee-==");
  CHECK(estimate_by_examples(graph_of(deep_trunk), 2, 128, ordinary_link) >
        1.3 * divide_by_features(graph_of(deep_trunk), 2, 128, ordinary_link)->estimated_seconds);
  // The input is everybody's: there is nothing to hand over.
  CHECK(ways_of(Sequential{Input({64}), Dense(8), Dense(10)}, free_link) != "e-==");
}

TEST_CASE("A convolution of many weights and few outputs takes a slice of its input's channels") {
  for (const int ranks : {2, 3, 4, 8}) {
    CHECK(ways_of(wide_end, ordinary_link, ranks) == "=~||-===");
    const auto division = divide_by_features(graph_of(wide_end), ranks, 128, ordinary_link);
    CHECK(division->estimated_seconds < 0.8 * estimate_by_examples(graph_of(wide_end), ranks, 128, ordinary_link));
    // Where outputs are as many as these, a sum of them costs more than it spares.
    CHECK(ways_of(deep_trunk, ordinary_link, ranks).find('-') == deep_trunk.layers().size() - 3);
  }
  // Behind the sum all is whole: what takes all channels may follow.
  CHECK(division_of(
      graph_of(Sequential{Input({5, 5, 1}), Conv2D(8, 3), Conv2D(4, 2), GlobalAveragePooling2D(), Activation(softmax)}),
      2, "acraaa"));
  CHECK_FALSE(division_of(graph_of(Sequential{Input({5, 5, 1}), Conv2D(8, 3), Reshape({9, 8}), Reshape({3, 6, 4}),
                                              Conv2D(4, 2), Flatten(), Dense(2)}),
                          2, "acraa"));
}

TEST_CASE("A rank's part of a convolution's kernel is its input channels', and all know the bias") {
  const auto backend = make_cpu_backend(1);
  const auto check = [&](std::int64_t channels, int filters, int ranks) {
    const Sequential model{Input({9, 9, 1}), Conv2D(static_cast<int>(channels), 2),
                           MaxPooling2D(),   Conv2D(filters, Extent(2, 3), {.activation = relu}),
                           Flatten(),        Dense(3)};
    const Graph whole = graph_of(model);
    const auto division = division_of(whole, ranks, "accraa");
    REQUIRE(division);
    INFO(channels << " channels, " << ranks << " ranks");
    constexpr std::size_t kernel = 2;
    CHECK(division->variables[kernel].outer == 6);
    CHECK(division->variables[kernel].axis == channels);
    CHECK(division->variables[kernel].inner == filters);
    CHECK(division->variables[kernel + 1].axis == 0);
    std::int64_t held = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Graph part = part_of(whole, *division, rank, 10, *backend);
      const ParameterSpec& mine = part.parameters[kernel];
      CHECK(mine.info.shape == Shape{2, 3, channels_of(channels, rank, ranks).size(), filters});
      CHECK(mine.own);
      CHECK(mine.divided);
      held += mine.info.shape[2];
      const ParameterSpec& bias = part.parameters[kernel + 1];
      CHECK(bias.info.shape == Shape{filters});
      CHECK(bias.own);
      CHECK_FALSE(bias.divided);
      CHECK(part.parameters.back().info.shape == Shape{10 * 3 * 2 * filters});
      CHECK(part.sums == 1);
      const std::string plan = make_plan(part).to_string();
      INFO(plan);
      CHECK(contains(plan, "contribute"));
      CHECK(plan.find("convolution conv2d_1") < plan.find("finish_sum conv2d_1"));
    }
    CHECK(held == channels);
  };
  for (const int ranks : {2, 3, 4}) {
    for (const std::int64_t channels : {2, 5, 7, 24, 32}) {
      for (const int filters : {5, 16}) check(channels, filters, ranks);
    }
  }
}

TEST_CASE("What convolves in slices of the batch stops before a sum of all of it") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(Sequential{Input({48, 48, 1}), Conv2D(64, 3, {.activation = relu}), MaxPooling2D(),
                                          Conv2D(8, 3), MaxPooling2D(), Flatten(), Dense(4)});
  const auto division = division_of(whole, 2, "accraaa");
  REQUIRE(division);
  const Plan plan = make_plan(part_of(whole, *division, 1, 73, *backend));
  int slices = 1;
  int summing = 0;
  for (const Operation& operation : plan.training) {
    slices = std::max(slices, operation.slices);
    const bool sums = operation.kind == OperationKind::convolution && operation.sum >= 0;
    if (sums) CHECK(operation.slices == 1);
    summing += sums ? 1 : 0;
  }
  CHECK(slices > 4);
  CHECK(summing == 1);
}

TEST_CASE("What a rank gives another is what that one takes, and values go where gradients come from") {
  const auto backend = make_cpu_backend(1);
  Graph whole = graph_of(deep_trunk);
  const auto division = division_of(whole, 3, "eeeeeeeeraa");
  REQUIRE(division);
  for (const std::size_t replicas : {0, 3, 5}) {
    whole.replicas = replicas;
    std::vector<Graph> parts;
    for (int rank = 0; rank < 3; ++rank) parts.push_back(part_of(whole, *division, rank, 37, *backend));
    std::size_t rows = 0;
    for (std::size_t me = 0; me < 3; ++me) {
      REQUIRE(parts[me].exchanges.size() == 2);
      const auto& [values, gradients] = std::tie(parts[me].exchanges[0], parts[me].exchanges[1]);
      const std::size_t mine = parts[me].rows_of(37, static_cast<int>(me)).size();
      rows += mine;
      for (std::size_t other = 0; other < 3; ++other) {
        CHECK(values.given[other] == mine * 36 * static_cast<std::size_t>(values.channels[other]));
        CHECK(values.given[other] == parts[other].exchanges[0].taken[me]);
        CHECK(values.given[other] == gradients.taken[other]);
        CHECK(values.taken[other] == gradients.given[other]);
      }
      const std::string plan = make_plan(parts[me]).to_string();
      INFO(plan);
      for (const char* line : {"pack dense t7 by examples exchange 0\ngive exchange 0\ntake exchange 0\nunpack dense",
                               "by examples", "exchange 1\ngive exchange 1\ntake exchange 1\nunpack"}) {
        INFO(line);
        CHECK(contains(plan, line));
      }
    }
    CHECK(rows == 37);
  }
}

TEST_CASE("Convolutions behind layers by examples take what is handed over as they like it") {
  const auto backend = make_cpu_backend(1);
  for (const auto& [filters, block] : {std::pair(64, 16), std::pair(24, 8), std::pair(7, 3)}) {
    const Graph whole = graph_of(Sequential{Input({12, 12, 1}), Conv2D(filters, 3, {.activation = relu}),
                                            MaxPooling2D(), Conv2D(32, 3), Flatten(), Dense(4)});
    const auto division = division_of(whole, 2, "eeeraa");
    REQUIRE(division);
    const Graph part = part_of(whole, *division, 1, 21, *backend);
    const auto is_unpack = [](const Operation& operation) { return operation.kind == OperationKind::unpack; };
    const auto unpack = std::find_if(part.forward.begin(), part.forward.end(), is_unpack);
    REQUIRE(unpack != part.forward.end());
    const TensorSpec& taken = part.tensors[static_cast<std::size_t>(unpack->output)];
    CHECK(taken.whole_channels == filters);
    CHECK(taken.channels == channels_of(filters, 1, 2).size());
    const bool has_blocks = part.tensors[1].blocked;  // else this processor's kernels like Keras' order
    CHECK(taken.block == (has_blocks ? block : taken.channels));
    const std::string plan = make_plan(part).to_string();
    INFO(plan);
    for (const char* line : {"give exchange 0\ntake exchange 0\nunpack conv2d_1", "give exchange 1\ntake exchange 1"}) {
      CHECK(contains(plan, line));
    }
  }
  const Sequential trunk_before_wide_end{Input({32, 32, 1}), Conv2D(32, 3, {.activation = relu}),
                                         MaxPooling2D(),     Conv2D(128, 3, {.activation = relu}),
                                         MaxPooling2D(),     Conv2D(1024, 3, {.strides = 3, .activation = relu}),
                                         Conv2D(1024, 2),    GlobalAveragePooling2D(),
                                         Dense(10)};
  CHECK(ways_of(trunk_before_wide_end, {.latency = 5e-5, .bytes_per_second = 1.25e9}, 4) == "eeeee-||-=");
}

TEST_CASE("A trunk by examples goes through its rows in slices, and back when its gradient has come") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(Sequential{Input({48, 48, 1}), Conv2D(64, 3, {.activation = relu}), MaxPooling2D(),
                                          Conv2D(8, 3), Flatten(), Dense(20), Dense(4)});
  const auto division = division_of(whole, 2, "eeeeraa");
  REQUIRE(division);
  const Plan plan = make_plan(part_of(whole, *division, 1, 73, *backend));
  std::vector<int> given;
  int slices = 1;
  for (const Operation& operation : plan.training) {
    if (operation.kind == OperationKind::convolution) slices = std::max(slices, operation.slices);
    if (operation.kind == OperationKind::give) given.push_back(operation.exchange);
    if (operation.kind == OperationKind::unpack) CHECK(given.back() == operation.exchange);
    if (operation.kind == OperationKind::convolution_backward) CHECK(given == std::vector<int>{0, 1});
  }
  CHECK(slices > 4);
  CHECK(plan.graph.tensors[1].passing_rows ==
        (36U + static_cast<unsigned>(slices) - 1) / static_cast<unsigned>(slices));
}

TEST_CASE("Channels are dealt in sixteens, in eights, or one by one; all of them, in order") {
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
        const Channels mine = channels_of(count, rank, ranks);
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

TEST_CASE("A rank's part holds its slices, and plans of all ranks agree") {
  const auto backend = make_cpu_backend(1);
  for (const Sequential& model : {keras_mnist, custom_training_mnist, wide_end}) {
    for (const Speeds& speeds : {free_link, fast_link, ordinary_link, slow_link}) {
      const Graph whole = graph_of(model);
      for (const int ranks : {2, 3, 5, 40}) {
        const auto division = divide_by_features(whole, ranks, 32, speeds);
        REQUIRE(division);
        std::vector<std::int64_t> held(static_cast<std::size_t>(whole.metrics_parameter()), 0);
        std::string digest;
        for (int rank = 0; rank < ranks; ++rank) {
          Graph part = part_of(whole, *division, rank, 32, *backend);
          for (std::size_t p = 0; p < held.size(); ++p) held[p] += part.parameters[p].info.shape.elements();
          Plan plan = make_plan(std::move(part));
          plan.division = division->to_string(whole);
          if (rank == 0) digest = plan.digest();
          CHECK(plan.digest() == digest);
          CHECK(plan.buckets[plan.metrics_bucket].begin <=
                plan.graph.parameters[static_cast<std::size_t>(plan.graph.metrics_parameter())].offset);
        }
        for (std::size_t p = 0; p < held.size(); ++p) {
          const std::int64_t all = whole.parameters[p].info.shape.elements();
          CHECK(held[p] == (division->variables[p].axis > 0 ? all : all * ranks));
        }
      }
    }
  }
}

TEST_CASE("Of a model that all ranks compute whole only metrics are summed, while backward goes on") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(keras_mnist);
  const Plan plan = make_plan(part_of(whole, divide_nothing(whole, 2, 32, ordinary_link), 0, 32, *backend));
  CHECK(plan.buckets.size() == 1);
  const auto place = [&](OperationKind kind) {
    return std::find_if(plan.training.begin(), plan.training.end(),
                        [kind](const Operation& operation) { return operation.kind == kind; });
  };
  CHECK(place(OperationKind::loss) < place(OperationKind::contribute));
  CHECK(place(OperationKind::contribute) < place(OperationKind::dense_backward));
}

TEST_CASE("Ranks that know the whole batch's metrics seldom sum them up, the more seldom the shorter steps are") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(keras_mnist);
  const auto every = [&](const FeatureDivision& division, std::size_t batch) {
    return make_plan(part_of(whole, division, 1, batch, *backend)).metrics_every;
  };
  const auto nothing = [&](std::size_t batch) { return divide_nothing(whole, 2, batch, ordinary_link); };
  CHECK(every(nothing(1), 1) == 256);
  CHECK(every(nothing(128), 128) < 20);
  CHECK(every(*divide_by_features(whole, 2, 128, ordinary_link), 128) == every(nothing(128), 128));
  CHECK(every(nothing(4096), 4096) == 1);

  // Much is to be done where little is multiplied, too.
  const Graph pooled = graph_of(Sequential{Input({512, 512, 4}), MaxPooling2D(8), Flatten(), Dense(2)});
  CHECK(make_plan(part_of(pooled, divide_nothing(pooled, 2, 128, ordinary_link), 1, 128, *backend)).metrics_every < 5);

  Graph mirrored = whole;
  backend->lay_out(mirrored, 32);
  CHECK(make_plan(mirrored).metrics_every == 1);
}

TEST_CASE("A step that does not sum up its metrics runs all the others' operations but those of the metrics' sum") {
  const auto backend = make_cpu_backend(1);
  const Graph whole = graph_of(keras_mnist);
  const auto division = divide_by_features(whole, 2, 128, ordinary_link);
  REQUIRE(division);
  const Plan plan = make_plan(part_of(whole, *division, 1, 128, *backend));
  REQUIRE(plan.metrics_every > 1);
  const std::vector<std::size_t> all = plan.operations_of_step(true);
  const std::vector<std::size_t> without = plan.operations_of_step(false);
  CHECK(all.size() == plan.training.size());
  CHECK(std::is_sorted(without.begin(), without.end()));
  std::vector<OperationKind> left_out;
  for (const std::size_t i : all) {
    if (std::binary_search(without.begin(), without.end(), i)) continue;
    left_out.push_back(plan.training[i].kind);
    CHECK(plan.training[i].bucket == static_cast<int>(plan.metrics_bucket));
  }
  CHECK(left_out == std::vector{OperationKind::await, OperationKind::contribute, OperationKind::update});
}

TEST_CASE("What cannot be divided says which layer is to blame, and why") {
  CHECK(contains(why_not(Sequential{Input({5}), Dense(10)}), "the channels of layer 'dense' are the model's outputs"));
  CHECK(contains(why_not(Sequential{Input({5}), Activation(softmax)}), "no layer with weights"));
  CHECK(contains(why_not(Sequential{Input({5, 5, 1}), Conv2D(8, 3), GlobalAveragePooling2D(), Activation(softmax)}),
                 "layer 'activation' needs all of the channels of layer 'conv2d'"));
  CHECK(contains(why_not(Sequential{Input({5, 5, 1}), Conv2D(8, 3), Flatten(), BatchNormalization()}),
                 "layer 'batch_normalization' takes the channels of layer 'conv2d' in another shape"));
}

TEST_CASE("A link's times are those of its points, and lie on lines between and beyond them") {
  const LinkTimes link({{100, 1.0}, {200, 2.0}, {400, 3.0}});
  CHECK(link.seconds(10) == Approx(1.0));
  CHECK(link.seconds(100) == Approx(1.0));
  CHECK(link.seconds(150) == Approx(1.5));
  CHECK(link.seconds(300) == Approx(2.5));
  CHECK(link.seconds(1000) == Approx(6.0));
  CHECK(link.occupied(100) == Approx(0.5));  // as between the last two
  const LinkTimes described(1e-3, 1e6, 4);   // 2 (n - 1) / n of the bytes, in four rounds
  CHECK(described.seconds(1e6) == Approx(4e-3 + 1.5));
  CHECK(described.speeds(4).bytes_per_second == Approx(1e6));
}

TEST_CASE("What each layer sends is what the plan sums up") {
  const auto backend = make_cpu_backend(1);
  constexpr std::size_t batch = 64;
  for (const Sequential& model : {keras_mnist, custom_training_mnist, deep_trunk, wide_end}) {
    const Graph whole = graph_of(model);
    for (const int ranks : {2, 3, 8}) {
      const double sent = 2.0 * (ranks - 1) / ranks;
      for (const Speeds& speeds : {free_link, fast_link, ordinary_link, slow_link}) {
        const auto division = divide_by_features(whole, ranks, batch, speeds);
        REQUIRE(division);
        double told = 0;
        for (const LayerDivision& row : layer_divisions(whole, division, ranks, batch)) told += row.bytes_a_step;
        double exchanged = 0;  // on average, where ranks have more rows or fewer
        Plan plan;
        for (int rank = ranks; rank-- > 0;) {
          plan = make_plan(part_of(whole, *division, rank, batch, *backend));
          for (const ExchangeSpec& exchange : plan.graph.exchanges) {
            exchanged += static_cast<double>(sent_bytes(exchange, rank)) / ranks;
          }
        }
        // The metrics, and what fills cache lines, are no layer's.
        const double summed = sent * static_cast<double>(summed_bytes(plan));
        CHECK(told == Approx(summed + exchanged).epsilon(3e-3).margin(sent * 4 * 64));
      }
      double told = 0;
      for (const LayerDivision& row : layer_divisions(whole, {}, ranks, batch)) told += row.bytes_a_step;
      Graph laid_out = whole;
      backend->lay_out(laid_out, batch);
      const Plan plan = make_plan(std::move(laid_out));
      CHECK(told == Approx(sent * static_cast<double>(summed_bytes(plan))).margin(sent * 4 * 64));
    }
  }
}

TEST_CASE("A division is found again by its code, and no other") {
  const Graph whole = graph_of(keras_mnist);
  for (const Speeds& speeds : {free_link, fast_link, ordinary_link, slow_link}) {
    const auto division = divide_by_features(whole, 2, 128, speeds);
    REQUIRE(division);
    const auto again = division_of(whole, 2, division->code());
    REQUIRE(again);
    CHECK(*again == *division);
    CHECK(again->variables.size() == division->variables.size());
  }
  for (const char* code : {"", "-", "acraa?", "accaa", "acra", "arraa"}) CHECK_FALSE(division_of(whole, 2, code));
}

TEST_CASE("The kernels of a plan can be timed without anybody to sum with") {
  const auto backend = make_cpu_backend(1);
  const Graph trunk = graph_of(custom_training_mnist);
  const Graph narrow =
      graph_of(Sequential{Input({14, 14, 1}), Conv2D(2, 3), Conv2D(8, 3), GlobalAveragePooling2D(), Dense(10)});
  for (const auto& [whole, rank] : {std::pair(trunk, 0), std::pair(trunk, 2), std::pair(narrow, 0),
                                    std::pair(narrow, 2)}) {  // of two channels, rank 2 has none
    const auto division = divide_by_features(whole, 3, 32, slow_link);
    REQUIRE(division);
    const Plan plan = make_plan(part_of(whole, *division, rank, 32, *backend));
    const std::vector<double> seconds = measure_kernels(*backend, plan, Adam(), 32, 1, 3);
    REQUIRE(seconds.size() == plan.training.size());
    double sum = 0;
    for (const double each : seconds) sum += each;
    CHECK(sum > 0);
    CHECK(sum < 10);
    const LinkTimes nothing({{0, 0.0}, {1, 0.0}});
    CHECK(replay(plan, seconds, nothing) == Approx(sum).epsilon(0.01).margin(1e-5));
  }
}

TEST_CASE("Sums travel while operations go on, one after the other") {
  Plan plan;
  plan.buckets = {{0, 25}, {25, 50}, {50, 75}};  // of 100 bytes
  const auto of = [](OperationKind kind, int bucket) { return Operation{.kind = kind, .bucket = bucket}; };
  plan.training = {
      of(OperationKind::dense_backward, -1), of(OperationKind::contribute, 0), of(OperationKind::dense_backward, -1),
      of(OperationKind::contribute, 1),      of(OperationKind::update, 0),     of(OperationKind::dense_backward, -1),
      of(OperationKind::contribute, 2),      of(OperationKind::update, 1),     of(OperationKind::update, 2)};
  const std::vector<double> seconds{2, 0, 2, 0, 1, 2, 0, 1, 1};
  const auto with = [&](double latency, double per_byte) {
    return replay(plan, seconds, LinkTimes({{0, latency}, {100, latency + 100 * per_byte}}));
  };
  CHECK(with(0, 0) == Approx(9));
  CHECK(with(0, 0.01) == Approx(9));   // the last sum arrives while the update before it runs
  CHECK(with(3, 0) == Approx(11));     // contributed at 2, 4 and 7: the last arrives at 10
  CHECK(with(0, 0.10) == Approx(33));  // 2 + 3 times 10, and the last update
  // Each takes 13, but many are under way at once: contributed at 2, 4 and 6, the last arrives at 19.
  CHECK(replay(plan, seconds, LinkTimes({{0, 3.0}, {100, 13.0}, {200, 13.0}})) == Approx(20));
  plan.training.insert(plan.training.begin() + 5, of(OperationKind::await, 0));
  const std::vector<double> waiting{2, 0, 2, 0, 1, 0, 2, 0, 1, 1};
  CHECK(replay(plan, waiting, LinkTimes({{0, 0.0}, {100, 10.0}})) == Approx(33));
}
