// Tests of features that only GPUs have: captured and replayed steps, a resident dataset, metrics read late, and
// deterministic kernels.
#include "backend/make_backend.hpp"
#include "checked_model.hpp"
#include "collective/make_communicator.hpp"
#include "core/random.hpp"
#include "graph/lower.hpp"
#include "plan/step.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"

#include <lockstep/layers/sequential.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <variant>
#include <vector>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const Sequential model{Input({9, 8, 2}),
                       Conv2D(8, 3, {.padding = Padding::same, .activation = relu}),
                       MaxPooling2D(),
                       BatchNormalization(),
                       Flatten(),
                       Dropout(0.25),
                       Dense(16, {.activation = relu}),
                       Dense(4)};

/// Runs steps on a resident dataset, as training does.
class Run {
 public:
  /// `capacities`: of the executables that share the arenas, the smallest first.
  Run(bool deterministic, bool capturable, const std::vector<std::size_t>& capacities = {32})
      : examples_(make_examples(model, loss_, examples_in_set, 5, Pixels::bytes)),
        backend_(make_backend_under_test(1, deterministic)),
        communicator_(make_communicator(world_, {.device = backend_->device_streams()})),
        capturable_(capturable) {
    Graph graph = lower(model, loss_, Precision::float32, {}, {accuracy});
    backend_->lay_out(graph, capacities.front());
    plan_ = make_plan(std::move(graph), backend_->plan_options(1));
    const std::size_t elements = plan_.elements;
    const ArenaMemory memory = communicator_->allocate(elements, 3 * elements * sizeof(float), plan_.buckets);
    auto* mirrored = reinterpret_cast<float*>(memory.mirrored.data());
    arenas_ = {memory.gradients, {mirrored, elements}, {mirrored + elements, 2 * elements}, {}, elements};
    for (const std::size_t capacity : capacities) {
      Compiled& compiled = compiled_.emplace_back();
      compiled.capacity = capacity;
      compiled.executable = backend_->compile(plan_.graph, plan_.compute, arenas_, capacity);
      compiled.step = std::make_unique<Step>(plan_, *compiled.executable, *communicator_);
    }
    executable_ = compiled_.front().executable.get();
    RandomStream random(3, RandomPurpose::test, 2);
    for (std::size_t p = 0; p + 1 < plan_.graph.parameters.size(); ++p) {
      std::vector<float> values(static_cast<std::size_t>(plan_.graph.parameters[p].info.shape.elements()));
      for (float& value : values) value = 0.1F + 0.2F * random.uniform();
      executable_->write_parameter(p, values, arenas_.weights);
    }
    executable_->update_low_precision_copies();
  }

  /// Enqueues a step on `count` examples.
  void start(std::size_t count) {
    const StepContext context = prepare(count, true);
    if (capturable_) {
      step_->train(context, optimizer_, ++steps_);
    } else {
      train_call_by_call(context);
    }
  }

  /// Enqueues a forward pass on `count` examples.
  void start_evaluation(std::size_t count) {
    const StepContext context = prepare(count, false);
    if (capturable_) {
      step_->infer(context);
    } else {
      infer_call_by_call(context);
    }
  }

  /// Whether a forward pass on `count` examples would be the replay of a captured one. Enqueues it if so.
  [[nodiscard]] bool replays_evaluation(std::size_t count) {
    return executable_->try_replay(prepare(count, false), SGD(), 1, true);
  }

  std::vector<float> finish() {
    std::vector<float> metrics(plan_.graph.parameters[plan_.graph.metrics_parameter()].storage);
    executable_->take_metrics(metrics);
    return metrics;
  }

  std::vector<float> finish_evaluation() {
    std::vector<float> metrics(plan_.graph.parameters[plan_.graph.metrics_parameter()].storage);
    executable_->take_local_metrics(metrics);
    return metrics;
  }

  [[nodiscard]] std::vector<float> weights() const {
    std::vector<float> values(plan_.elements);
    executable_->read(arenas_.weights, values);
    return values;
  }

  [[nodiscard]] std::size_t max_in_flight() const { return executable_->max_in_flight(); }

 private:
  struct Compiled {
    std::size_t capacity = 0;
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Step> step;
  };

  /// A step's inputs; valid until the next call. Chooses the executable.
  StepContext prepare(std::size_t count, bool training) {
    drawn_.resize(count);
    std::iota(drawn_.begin(), drawn_.end(), static_cast<std::uint32_t>(steps_ % 8));
    rows_ = {{0, count / 2}, {count / 2, count}};
    inputs_ =
        std::visit([](const auto& values) -> InputPointer { return values.data(); }, examples_.data.input().values);
    targets_ =
        std::visit([](const auto& values) -> TargetPointer { return values.data(); }, examples_.data.target().values);
    const auto fits = [count](const Compiled& compiled) { return count <= compiled.capacity; };
    const auto compiled = std::find_if(compiled_.begin(), compiled_.end(), fits);
    REQUIRE(compiled != compiled_.end());
    executable_ = compiled->executable.get();
    step_ = compiled->step.get();
    StepContext context;
    context.data.inputs = {&inputs_, 1};
    context.data.targets = {&targets_, 1};
    context.data.examples = examples_in_set;
    context.data.dataset_id = 1;
    context.examples = drawn_;
    context.replicas = rows_;
    context.total_replicas = 2;
    context.gradient_scale = 1.0 / static_cast<double>(count);
    context.step = steps_;
    context.training = training;
    return context;
  }

  void infer_call_by_call(const StepContext& context) {
    REQUIRE_FALSE(executable_->try_replay(context, SGD(), 1, false));
    for (const PlanStep& step : plan_.inference) executable_->run(std::get<Compute>(step).operation, context);
    executable_->end_step();
  }

  /// Runs a step as Step does without capture.
  void train_call_by_call(const StepContext& context) {
    REQUIRE_FALSE(executable_->try_replay(context, optimizer_, ++steps_, false));
    for (const PlanStep& step : plan_.training) {
      if (const auto* ready = std::get_if<MarkReady>(&step)) communicator_->mark_ready(ready->bucket);
      if (const auto* wait = std::get_if<WaitUpdated>(&step)) communicator_->wait_updated(wait->bucket);
      if (const auto* compute = std::get_if<Compute>(&step)) executable_->run(compute->operation, context);
      if (const auto* update = std::get_if<Update>(&step)) {
        const ReducedShard shard = communicator_->wait_reduced(update->bucket);
        executable_->update({shard.begin, shard.end, shard.sources}, optimizer_, steps_);
        communicator_->mark_updated(update->bucket);
      }
    }
    communicator_->wait_updated(plan_.metrics_bucket);
    executable_->end_step();
  }

  static constexpr std::size_t examples_in_set = 64;
  Loss loss_ = SparseCategoricalCrossentropy({.from_logits = true});
  Optimizer optimizer_ = Adam();
  Examples examples_;
  World world_;
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Communicator> communicator_;
  bool capturable_;
  Plan plan_;
  Arenas arenas_;
  std::vector<Compiled> compiled_;
  Executable* executable_ = nullptr;  ///< of the last step
  Step* step_ = nullptr;
  std::vector<std::uint32_t> drawn_;
  std::vector<Range> rows_;
  InputPointer inputs_;
  TargetPointer targets_;
  std::uint64_t steps_ = 0;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("a replayed CUDA graph matches eager execution bit for bit") {
  Run captured(true, true);
  Run called(true, false);
  for (const std::size_t count : {32, 32, 32, 20, 32, 20, 20, 32}) {  // eager, captured, replayed; two batch sizes
    captured.start(count);
    called.start(count);
    INFO("a step of " << count);
    CHECK(same_bits(captured.finish(), called.finish()));
    CHECK(same_bits(captured.weights(), called.weights()));
  }
}

TEST_CASE("executables for several batch sizes train the same weights") {
  Run several(true, true, {8, 20, 40});
  Run one(true, true, {40});
  for (const std::size_t count : {32, 8, 8, 8, 20, 32, 20, 32, 7, 8, 40}) {
    several.start(count);
    one.start(count);
    INFO("a step of " << count);
    CHECK(same_bits(several.finish(), one.finish()));
    CHECK(same_bits(several.weights(), one.weights()));
  }
}

TEST_CASE("deterministic runs are reproducible and metrics may be read late") {
  Run one(true, true);
  Run other(true, true);
  std::vector<std::vector<float>> at_once;
  std::vector<std::vector<float>> late;
  for (std::size_t step = 0; step < 40; ++step) {
    one.start(32);
    at_once.push_back(one.finish());
    other.start(32);
    if (step + 1 >= other.max_in_flight()) late.push_back(other.finish());
  }
  while (late.size() < at_once.size()) late.push_back(other.finish());
  CHECK(at_once == late);
  CHECK(same_bits(one.weights(), other.weights()));
}

TEST_CASE("kernels that were timed compute what the deterministic ones do") {
  Run timed(false, true);
  Run first(true, true);
  for (std::size_t step = 0; step < 4; ++step) {
    timed.start(32);
    first.start(32);
    CHECK(timed.finish()[metric_loss] == Approx(first.finish()[metric_loss]).epsilon(1e-4));
  }
}

TEST_CASE("evaluation is captured, and its metrics may be read late") {
  Run captured(true, true);
  Run called(true, false);
  const std::vector<std::size_t> counts{32, 20, 32, 20, 32, 32, 20};
  for (int epoch = 0; epoch < 3; ++epoch) {
    captured.start(32);
    called.start(32);
    CHECK(same_bits(captured.finish(), called.finish()));
    std::vector<std::vector<float>> at_once;
    for (const std::size_t count : counts) {
      called.start_evaluation(count);
      at_once.push_back(called.finish_evaluation());
    }
    REQUIRE(counts.size() <= captured.max_in_flight());
    for (const std::size_t count : counts) captured.start_evaluation(count);
    for (const std::vector<float>& expected : at_once) {
      CHECK(expected[metric_count] > 0);
      CHECK(same_bits(captured.finish_evaluation(), expected));
    }
  }
  CHECK(captured.replays_evaluation(32));
}

TEST_CASE("training on a GPU reduces the loss") {
  Run run(false, true);
  std::vector<float> losses;
  for (std::size_t step = 0; step < 200; ++step) {
    run.start(32);
    losses.push_back(run.finish()[metric_loss]);
  }
  CHECK(losses.back() < 0.7F * losses.front());
}
