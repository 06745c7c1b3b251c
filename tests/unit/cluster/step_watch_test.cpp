// Who is blamed for a training that stands still, and after how long; and what is no standstill.
#include "cluster/step_watch.hpp"

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// Ranks whose launchers tell of them twice a second, as of trainers that have said something at `heard`.
struct Ranks {
  struct Rank {
    Activity activity = Activity::busy;
    std::uint64_t step = 0;
    double heard = 0;
    double longest_silence = 0;
    bool is_told = true;
  };

  explicit Ranks(std::size_t count, const Supervision& limits = {}) : watch(limits), ranks(count) {
    watch.begin(count);
  }

  void say(std::size_t rank, Activity activity, std::uint64_t step, double longest_silence = 0.1) {
    ranks[rank] = {activity, step, now, longest_silence, true};
  }

  /// The first that is found, or nothing so long.
  std::optional<Stall> run(double seconds) {
    for (const double end = now + seconds; now < end; now += 0.25) {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const Rank& it = ranks[rank];
        if (!it.is_told) continue;
        Progress report{1, rank, it.activity, it.step};
        report.longest_silence = it.longest_silence;
        report.silence = now - it.heard;
        watch.hear(report, now);
      }
      if (const std::optional<Stall> stall = watch.find(now)) return stall;
    }
    return {};
  }

  /// While others are silent this one waits for them, and says so.
  std::optional<Stall> run_waiting(std::size_t rank, double seconds) {
    for (const double end = now + seconds; now < end;) {
      say(rank, Activity::waiting, ranks[rank].step);
      if (const std::optional<Stall> stall = run(0.5)) return stall;
    }
    return {};
  }

  StepWatch watch;
  std::vector<Rank> ranks;
  double now = 0;
};

}  // namespace

TEST_CASE("of two ranks the one is blamed that computes and is silent, not the one that waits for it") {
  for (const std::size_t stopped : {0U, 1U}) {
    Ranks ranks(2);
    ranks.say(stopped, Activity::training, stopped == 0 ? 8 : 7);  // what it told last is older by a step or two
    ranks.say(1 - stopped, Activity::training, 8);
    const std::optional<Stall> stall = ranks.run_waiting(1 - stopped, 20);
    REQUIRE(stall);
    CHECK(stall->rank == stopped);
    CHECK(stall->what.rfind("no step for 4.", 0) == 0);
    CHECK(stall->what.find("it stands at step " + std::to_string(stopped == 0 ? 8 : 7)) != std::string::npos);
    CHECK(ranks.now < 4.8);
  }
}

TEST_CASE("a rank that waited, and has stopped doing so, is to blame") {
  Ranks ranks(3);
  for (const std::size_t rank : {0U, 1U, 2U}) ranks.say(rank, Activity::training, 5);
  ranks.say(2, Activity::waiting, 5);
  ranks.ranks[0].longest_silence = ranks.ranks[1].longest_silence = 30;  // their steps take their time
  const std::optional<Stall> stall = ranks.run(20);
  REQUIRE(stall);
  CHECK(stall->rank == 2);
}

TEST_CASE("where nobody says that it waits, as with GPUs, the rank behind is blamed, then the first that fell silent") {
  Ranks ranks(2);
  ranks.say(1, Activity::training, 5);
  ranks.now = 0.1;
  ranks.say(0, Activity::training, 5);
  std::optional<Stall> stall = ranks.run(20);
  REQUIRE(stall);
  CHECK(stall->rank == 1);

  Ranks others(2);
  others.say(0, Activity::training, 4);
  others.say(1, Activity::training, 5);
  stall = others.run(20);
  REQUIRE(stall);
  CHECK(stall->rank == 0);
}

TEST_CASE("slow steps are no standstill, whatever the time-out") {
  Ranks ranks(2);
  std::uint64_t step = 0;
  const auto all = [&](double longest_silence) {
    ++step;
    for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::training, step, longest_silence);
  };
  all(0);  // the first steps make kernels and touch memory
  CHECK_FALSE(ranks.run(100));
  all(0);
  CHECK_FALSE(ranks.run(590));
  for (int i = 0; i < 5; ++i) {  // ten seconds each
    all(10);
    CHECK_FALSE(ranks.run(10));
  }
  all(10);
  CHECK_FALSE(ranks.run(29.5));
  CHECK(ranks.run(1.5));
}

TEST_CASE("who is busy has minutes, from its last sign of life on; those that wait for it have as long") {
  Ranks ranks(2);
  ranks.say(0, Activity::training, 50);
  ranks.say(1, Activity::training, 50);
  CHECK_FALSE(ranks.run(1));
  ranks.say(0, Activity::busy, 50);  // saves
  CHECK_FALSE(ranks.run_waiting(1, 590));
  ranks.say(0, Activity::busy, 50);
  CHECK_FALSE(ranks.run_waiting(1, 590));
  const std::optional<Stall> stall = ranks.run_waiting(1, 20);
  REQUIRE(stall);
  CHECK(stall->rank == 0);
  CHECK(stall->what.find("busy, and not heard for 600") != std::string::npos);
}

TEST_CASE("short epochs with something between them are watched as closely as long ones") {
  Ranks ranks(2);
  std::uint64_t step = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (int i = 0; i < 2; ++i) {
      ++step;
      for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::training, step);
      REQUIRE_FALSE(ranks.run(0.25));
    }
    for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::busy, step);
    REQUIRE_FALSE(ranks.run(0.5));
  }
  ranks.say(0, Activity::training, step);
  const double began = ranks.now;
  const std::optional<Stall> stall = ranks.run_waiting(1, 20);
  REQUIRE(stall);
  CHECK(stall->rank == 0);
  CHECK(ranks.now - began < 4.8);
}

TEST_CASE("a rank that never comes to its first step is noticed, one that never says anything is let alone") {
  Ranks ranks(2, {.busy = 20});
  ranks.say(0, Activity::busy, 0);
  ranks.say(1, Activity::busy, 0);
  CHECK_FALSE(ranks.run_waiting(0, 19));
  std::optional<Stall> stall = ranks.run_waiting(0, 3);
  REQUIRE(stall);
  CHECK(stall->rank == 1);
  CHECK(stall->what.rfind("it did not begin to train within 20.", 0) == 0);

  Ranks others(2);
  others.ranks[0].is_told = others.ranks[1].is_told = false;
  CHECK_FALSE(others.run(100000));
}

TEST_CASE("ranks that all wait for each other are noticed, once it is known how long steps take") {
  const auto all_wait = [](Ranks& ranks, double seconds) {
    for (const double end = ranks.now + seconds; ranks.now < end;) {
      for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::waiting, ranks.ranks[rank].step);
      if (const std::optional<Stall> stall = ranks.run(0.5)) return std::optional(*stall);
    }
    return std::optional<Stall>();
  };
  Ranks ranks(2);
  for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::training, 1);
  CHECK_FALSE(ranks.run(0.5));
  CHECK_FALSE(all_wait(ranks, 60));  // a slow network: it may be like that
  for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::training, 2);
  CHECK_FALSE(ranks.run(0.5));
  CHECK_FALSE(all_wait(ranks, 170));  // steps take a minute here
  const std::optional<Stall> stall = all_wait(ranks, 20);
  REQUIRE(stall);
  CHECK(stall->what.find("all ranks have waited for each other for 18") != std::string::npos);

  Ranks quick(2);
  for (std::uint64_t step = 1; step < 4; ++step) {
    for (const std::size_t rank : {0U, 1U}) quick.say(rank, Activity::training, step);
    CHECK_FALSE(quick.run(0.5));
  }
  const double began = quick.now;
  CHECK(all_wait(quick, 20));
  CHECK(quick.now - began < 5);
}

TEST_CASE("who has ended is not watched, and 0 seconds mean never") {
  Ranks ranks(2);
  ranks.say(0, Activity::training, 5);
  ranks.say(1, Activity::training, 5);
  ranks.watch.end(0);
  ranks.watch.end(1);
  CHECK_FALSE(ranks.run(1000));

  Ranks never(2, {.busy = 20, .stuck = 0});
  never.say(0, Activity::training, 5);
  never.say(1, Activity::busy, 5);
  CHECK_FALSE(never.run(1000));
  Ranks busy(1, {.busy = 0});
  busy.say(0, Activity::busy, 5);
  CHECK_FALSE(busy.run(1000));
  busy.say(0, Activity::training, 5);
  CHECK(busy.run(5));
}

TEST_CASE("time in which the one who measures was stopped does not count") {
  Ranks ranks(1);
  for (std::uint64_t step = 1; step < 4; ++step) {
    ranks.say(0, Activity::training, step);
    CHECK_FALSE(ranks.run(0.5));
  }
  CHECK_FALSE(ranks.run_waiting(0, 2));
  ranks.now += 100;
  ranks.watch.forgive(100);
  CHECK_FALSE(ranks.run_waiting(0, 1));
  CHECK(ranks.run_waiting(0, 3));
}

TEST_CASE("silences that are no numbers neither accuse nor excuse for ever") {
  Ranks ranks(1);
  ranks.say(0, Activity::training, 5, std::numeric_limits<double>::quiet_NaN());
  CHECK_FALSE(ranks.run(500));
  const std::optional<Stall> stall = ranks.run(200);
  CHECK(stall);
}
