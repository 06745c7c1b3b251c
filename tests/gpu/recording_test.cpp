// What only a GPU has: steps that are recorded and replayed, a resident data set, metrics taken late, and bits that are
// the same in every run.
#include "backend/make_backend.hpp"
#include "collective/make_communicator.hpp"
#include "core/random.hpp"
#include "plan/lower.hpp"
#include "plan/step.hpp"
#include "support/catch.hpp"
#include "support/examples.hpp"
#include "twin.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
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

/// Steps on a resident data set, as training takes them.
class Run {
 public:
  Run(bool deterministic, bool recordable)
      : examples_(make_examples(model, loss_, examples_in_set, 5, Pixels::bytes)),
        backend_(make_backend_under_test(1, deterministic)),
        communicator_(make_communicator(world_, Transport::automatic, backend_->queue())),
        recordable_(recordable) {
    Graph graph = lower(model, loss_, false);
    backend_->lay_out(graph, capacity);
    plan_ = make_plan(std::move(graph), backend_->plan_options(1));
    const std::size_t elements = plan_.elements;
    const ArenaMemory memory = communicator_->allocate(elements, 3 * elements * sizeof(float), plan_.buckets);
    auto* mirrored = reinterpret_cast<float*>(memory.mirrored.data());
    arenas_ = {memory.gradients, {mirrored, elements}, {mirrored + elements, 2 * elements}, {}, elements};
    executable_ = backend_->compile(plan_.graph, plan_.compute, arenas_, capacity);
    step_ = std::make_unique<Step>(plan_, *executable_, *communicator_);
    RandomStream random(3, RandomPurpose::test, 2);
    for (std::size_t p = 0; p + 1 < plan_.graph.parameters.size(); ++p) {
      std::vector<float> values(static_cast<std::size_t>(plan_.graph.parameters[p].info.shape.elements()));
      for (float& value : values) value = 0.1F + 0.2F * random.uniform();
      executable_->write_parameter(p, values, arenas_.weights);
    }
    executable_->refresh();
  }

  /// Enqueues a step on `count` examples.
  void start(std::size_t count) {
    std::vector<std::uint32_t> drawn(count);
    std::iota(drawn.begin(), drawn.end(), static_cast<std::uint32_t>(steps_ % 8));
    const std::vector<ReplicaRows> rows{{0, count / 2}, {count / 2, count}};
    StepContext context;
    std::visit([&](const auto& inputs) { context.data.inputs = inputs.data(); }, examples_.data.inputs);
    std::visit([&](const auto& targets) { context.data.targets = targets.data(); }, examples_.data.targets);
    context.data.examples = examples_in_set;
    context.data.lasting = true;
    context.examples = drawn;
    context.replicas = rows;
    context.total_replicas = 2;
    context.gradient_scale = 1.0 / static_cast<double>(count);
    context.step = steps_;
    context.training = true;
    if (recordable_) {
      step_->train(context, optimizer_, ++steps_);
      return;
    }
    train_call_by_call(context);
  }

  std::vector<float> finish() {
    std::array<float, metric_places> sums;
    executable_->take_metrics(sums);
    return {sums.begin(), sums.begin() + 3};
  }

  [[nodiscard]] std::vector<float> weights() const {
    std::vector<float> values(plan_.elements);
    executable_->read(arenas_.weights, values);
    return values;
  }

  [[nodiscard]] std::size_t steps_ahead() const { return executable_->steps_ahead(); }

 private:
  /// As Step does where nothing may be recorded.
  void train_call_by_call(const StepContext& context) {
    REQUIRE_FALSE(executable_->begin_step(context, optimizer_, ++steps_, false));
    for (const Operation& operation : plan_.training) {
      const auto bucket = static_cast<std::size_t>(operation.bucket);
      if (operation.kind == OperationKind::contribute) {
        communicator_->contribute(bucket);
      } else if (operation.kind == OperationKind::await) {
        communicator_->await(bucket);
      } else if (operation.kind == OperationKind::update) {
        const ReducedShare share = communicator_->reduce(bucket);
        executable_->update({share.begin, share.end, share.sources}, optimizer_, steps_);
        communicator_->publish(bucket);
      } else {
        executable_->run(operation, context);
      }
    }
    communicator_->await(plan_.metrics_bucket);
    executable_->end_step();
  }

  static constexpr std::size_t capacity = 32;
  static constexpr std::size_t examples_in_set = 64;
  Loss loss_ = SparseCategoricalCrossentropy({.from_logits = true});
  Optimizer optimizer_ = Adam();
  Examples examples_;
  World world_;
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Communicator> communicator_;
  bool recordable_;
  Plan plan_;
  Arenas arenas_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Step> step_;
  std::uint64_t steps_ = 0;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("A replayed step computes what a step call by call does, bit for bit") {
  Run recorded(true, true);
  Run called(true, false);
  for (const std::size_t count : {32, 32, 32, 20, 32, 20, 20, 32}) {  // eager, recorded, replayed; of two shapes
    recorded.start(count);
    called.start(count);
    INFO("a step of " << count);
    CHECK(same_bits(recorded.finish(), called.finish()));
    CHECK(same_bits(recorded.weights(), called.weights()));
  }
}

TEST_CASE("Deterministic runs give the same bits; metrics may be taken late") {
  Run one(true, true);
  Run other(true, true);
  std::vector<std::vector<float>> at_once;
  std::vector<std::vector<float>> late;
  for (std::size_t step = 0; step < 40; ++step) {
    one.start(32);
    at_once.push_back(one.finish());
    other.start(32);
    if (step + 1 >= other.steps_ahead()) late.push_back(other.finish());
  }
  while (late.size() < at_once.size()) late.push_back(other.finish());
  CHECK(at_once == late);
  CHECK(same_bits(one.weights(), other.weights()));
}

TEST_CASE("Training goes down on a GPU") {
  Run run(false, true);
  std::vector<float> losses;
  for (std::size_t step = 0; step < 200; ++step) {
    run.start(32);
    losses.push_back(run.finish()[metric_loss]);
  }
  CHECK(losses.back() < 0.7F * losses.front());
}
