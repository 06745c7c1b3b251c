// When updates run: the rules that training and the cost model's simulation share.
#include "plan/schedule.hpp"

#include "support/catch.hpp"

#include <set>
#include <string>

using namespace lockstep;

namespace {

/// Records what a schedule runs: "C0" computes, "R0" marks ready, "U0" updates, "W0" waits.
struct Recorder {
  const Plan& plan;
  std::set<std::size_t> reduced;  ///< buckets that are reduced from the start
  std::string text;

  void run(std::size_t place) {
    const PlanStep& step = plan.training[place];
    if (const auto* compute = std::get_if<Compute>(&step)) text += "C" + std::to_string(compute->operation) + " ";
    if (const auto* ready = std::get_if<MarkReady>(&step)) text += "R" + std::to_string(ready->bucket) + " ";
    if (const auto* wait = std::get_if<WaitUpdated>(&step)) text += "W" + std::to_string(wait->bucket) + " ";
  }
  void update(std::size_t place, std::size_t bucket) {
    CHECK(is_step_of<Update>(plan.training[place], bucket));
    text += "U" + std::to_string(bucket) + " ";
  }
  [[nodiscard]] bool is_reduced(std::size_t bucket) const { return reduced.contains(bucket); }
};

std::string run(const Plan& plan, const std::set<std::size_t>& reduced, bool reduces_metrics = true) {
  Recorder recorder{plan, reduced, {}};
  Schedule(plan, reduces_metrics).run(recorder);
  return recorder.text;
}

Plan three_buckets() {
  Plan plan;
  plan.training = {MarkReady{0}, Update{0},    Compute{0}, MarkReady{1}, Update{1},
                   Compute{1},   MarkReady{2}, Update{2},  Compute{2}};
  plan.metrics_bucket = 2;
  return plan;
}

}  // namespace

TEST_CASE("a reduced bucket is updated at its planned place") {
  CHECK(run(three_buckets(), {0, 1, 2}) == "R0 U0 C0 R1 U1 C1 R2 U2 C2 ");
}

TEST_CASE("updates of buckets in flight are deferred to the end, in order") {
  CHECK(run(three_buckets(), {}) == "R0 C0 R1 C1 R2 C2 U0 U1 U2 ");
  CHECK(run(three_buckets(), {1, 2}) == "R0 C0 R1 C1 R2 C2 U0 U1 U2 ");  // the first holds back the others
  CHECK(run(three_buckets(), {0}) == "R0 U0 C0 R1 C1 R2 C2 U1 U2 ");
}

TEST_CASE("waiting for a bucket runs its update and earlier ones, and no others") {
  Plan plan = three_buckets();
  plan.training.insert(plan.training.end() - 1, WaitUpdated{1});
  CHECK(run(plan, {}) == "R0 C0 R1 C1 R2 U0 U1 W1 C2 U2 ");
  plan.training.insert(plan.training.begin(), WaitUpdated{0});  // no update is pending yet
  CHECK(run(plan, {}) == "W0 R0 C0 R1 C1 R2 U0 U1 W1 C2 U2 ");
}

TEST_CASE("a step without metric reduction skips the metrics' bucket") {
  CHECK(run(three_buckets(), {}, false) == "R0 C0 R1 C1 C2 U0 U1 ");
}
