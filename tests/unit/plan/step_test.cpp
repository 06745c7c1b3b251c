// A step's profile: its parts add up, and it covers training steps only.
#include "plan/step.hpp"

#include "backend/make_backend.hpp"
#include "core/clock.hpp"
#include "graph/lower.hpp"
#include "support/catch.hpp"

#include <lockstep/layers/sequential.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

constexpr double operation_seconds = 20e-6;
constexpr double wait_seconds = 50e-6;

void spin(double seconds) {
  const double end = monotonic_seconds() + seconds;
  while (monotonic_seconds() < end) {
  }
}

/// Spends time and computes nothing.
class IdleExecutable final : public Executable {
 public:
  void run(std::size_t /*operation*/, const StepContext& /*context*/) override { spin(operation_seconds); }
  void update(const ReducedShard& /*shard*/, const Optimizer& /*optimizer*/, std::uint64_t /*iteration*/) override {
    spin(operation_seconds);
  }
  void add_squared_gradients(const ReducedShard& /*shard*/, const Optimizer& /*optimizer*/, std::uint64_t /*iteration*/,
                             std::span<double> /*sums*/) override {}
  void take_metrics(std::span<float> /*metrics*/) override {}
  void take_local_metrics(std::span<float> /*metrics*/) override {}
  void read_bytes(std::span<const std::byte> /*arena*/, std::span<std::byte> /*values*/) const override {}
  void read_parameter(std::size_t /*p*/, std::span<const float> /*arena*/, std::span<float> /*v*/) const override {}
  void write_parameter(std::size_t /*p*/, std::span<const float> /*v*/, std::span<float> /*arena*/) const override {}
  void unpack_parameter(std::size_t /*p*/, std::span<const float> /*s*/, std::span<float> /*v*/) const override {}
  void update_low_precision_copies() override {}
  [[nodiscard]] std::span<const float> outputs(std::size_t /*output*/) override { return {}; }
  [[nodiscard]] std::string implementation(std::size_t /*operation*/) override { return "idle"; }
};

/// Spends time waiting, as if for another rank.
class IdleCommunicator final : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 2; }
  [[nodiscard]] std::string describe() const override { return "idle"; }
  [[nodiscard]] std::vector<int> mirror_of_rank() const override { return {0, 0}; }
  [[nodiscard]] bool is_mirror_owner() const noexcept override { return true; }
  ArenaMemory allocate(std::size_t /*elements*/, std::size_t /*bytes*/, std::vector<Range> /*b*/) override {
    return {};
  }
  void mark_ready(std::size_t /*bucket*/) override {}
  [[nodiscard]] ReducedShard wait_reduced(std::size_t /*bucket*/) override {
    wait();
    return {};
  }
  void mark_updated(std::size_t /*bucket*/) override {}
  void wait_updated(std::size_t /*bucket*/) override { wait(); }
  void all_reduce_sum(std::span<double> /*values*/) override { wait(); }
  void broadcast(std::span<std::byte> /*bytes*/, int /*root*/) override {}
  void start_gather(std::span<const std::span<std::byte>> /*s*/, int /*root*/, OnGathered /*o*/,
                    std::size_t /*max_steps*/) override {}
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) override { return {text, text}; }
  void barrier() override { wait(); }
  [[nodiscard]] CommunicationTimes take_times() noexcept override { return std::exchange(times_, {}); }

 private:
  void wait() {
    const double begin = monotonic_seconds();
    spin(wait_seconds);
    times_.shared_memory_wait += monotonic_seconds() - begin;
  }

  CommunicationTimes times_;
};

/// A plan whose inference communicates too, like that of a tensor-parallel model.
Plan communicating_plan() {
  Graph graph = lower(Sequential{Input({64}), Dense(64, {.activation = relu}), Dense(64), Dense(10)},
                      SparseCategoricalCrossentropy({.from_logits = true}), Precision::float32);
  make_cpu_backend(1)->lay_out(graph, 32);
  Plan plan = make_plan(std::move(graph));
  for (const PlanStep& step : {PlanStep(MarkReady{0}), PlanStep(Update{0}), PlanStep(WaitUpdated{0})}) {
    plan.inference.push_back(step);
  }
  return plan;
}

double sum_of(const std::map<std::string, double>& kinds) {
  return std::accumulate(kinds.begin(), kinds.end(), 0.0,
                         [](double sum, const auto& kind) { return sum + kind.second; });
}

}  // namespace

TEST_CASE("the parts of a step's profile add up to its total") {
  const Plan plan = communicating_plan();
  IdleExecutable executable;
  IdleCommunicator communicator;
  for (const Optimizer& optimizer : {Optimizer(SGD()), Optimizer(SGD({.clipnorm = 1.0}))}) {
    Step step(plan, executable, communicator);
    for (std::uint64_t iteration = 1; iteration <= 5; ++iteration) step.train({}, optimizer, iteration);
    const StepProfile& profile = step.profile();
    CHECK(profile.steps == 5);
    const double parts = std::accumulate(profile.seconds.begin(), profile.seconds.end(), profile.communication);
    CHECK(parts <= profile.total);
    CHECK(parts >= 5 * static_cast<double>(plan.compute.size()) * operation_seconds);
    CHECK(profile.waiting > 0);
    CHECK(profile.waiting <= profile.communication);
    CHECK(sum_of(profile.by_kind(plan)) == Approx(1000 * parts / 5));
  }
}

TEST_CASE("a step's profile excludes evaluation and waits between steps") {
  const Plan plan = communicating_plan();
  IdleExecutable executable;
  IdleCommunicator communicator;
  Step step(plan, executable, communicator);
  step.train({}, SGD(), 1);
  const StepProfile before = step.profile();
  for (int i = 0; i < 5; ++i) {
    step.infer({});
    step.predict({});
    step.synchronize();
    communicator.barrier();
  }
  CHECK(step.profile().seconds == before.seconds);
  CHECK(step.profile().communication == before.communication);
  CHECK(step.profile().waiting == before.waiting);
  CHECK(step.profile().total == before.total);
  CHECK(step.profile().steps == 1);
  step.train({}, SGD(), 2);
  CHECK(step.profile().waiting <= step.profile().communication);
  step.reset_profile();
  CHECK(step.profile().total == 0);
}
