// Which rank is blamed for a stall, and when; and what is not a stall.
#include "cluster/rendezvous/stall_detector.hpp"

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// Ranks whose launchers report about them twice per second. `heard` is the time of each trainer's last report.
struct Ranks {
  struct Rank {
    Activity activity = Activity::busy;
    std::uint64_t step = 0;
    double heard = 0;
    double max_silent_seconds = 0;
    bool is_told = true;
  };

  explicit Ranks(std::size_t count, const SupervisionTimeouts& timeouts = {}) : watch(timeouts), ranks(count) {
    watch.begin(count);
  }

  void say(std::size_t rank, Activity activity, std::uint64_t step, double max_silent_seconds = 0.1) {
    ranks[rank] = {activity, step, now, max_silent_seconds, true};
  }

  /// Returns the first stall within `seconds`, or nullopt.
  std::optional<Stall> run(double seconds) {
    for (const double end = now + seconds; now < end; now += 0.25) {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const Rank& it = ranks[rank];
        if (!it.is_told) continue;
        Progress report{1, rank, it.activity, it.step};
        report.max_silent_seconds = it.max_silent_seconds;
        report.silent_seconds = now - it.heard;
        watch.update(report, now);
      }
      if (const std::optional<Stall> stall = watch.find_stall(now)) return stall;
    }
    return {};
  }

  /// The same while this rank reports that it waits for the others.
  std::optional<Stall> run_waiting(std::size_t rank, double seconds) {
    for (const double end = now + seconds; now < end;) {
      say(rank, Activity::waiting, ranks[rank].step);
      if (const std::optional<Stall> stall = run(0.5)) return stall;
    }
    return {};
  }

  StallDetector watch;
  std::vector<Rank> ranks;
  double now = 0;
};

}  // namespace

TEST_CASE("the silent computing rank is blamed, not the rank that waits for it") {
  for (const std::size_t stopped : {0U, 1U}) {
    Ranks ranks(2);
    ranks.say(stopped, Activity::training, stopped == 0 ? 8 : 7);  // its last report may be a step behind
    ranks.say(1 - stopped, Activity::training, 8);
    const std::optional<Stall> stall = ranks.run_waiting(1 - stopped, 20);
    REQUIRE(stall);
    CHECK(stall->rank == stopped);
    CHECK(stall->what.rfind("no step for 4.", 0) == 0);
    CHECK(stall->what.find("last step " + std::to_string(stopped == 0 ? 8 : 7)) != std::string::npos);
    CHECK(ranks.now < 4.8);
  }
}

TEST_CASE("a rank that stopped waiting and fell silent is blamed") {
  Ranks ranks(3);
  for (const std::size_t rank : {0U, 1U, 2U}) ranks.say(rank, Activity::training, 5);
  ranks.say(2, Activity::waiting, 5);
  ranks.ranks[0].max_silent_seconds = ranks.ranks[1].max_silent_seconds = 30;  // their steps are slow
  const std::optional<Stall> stall = ranks.run(20);
  REQUIRE(stall);
  CHECK(stall->rank == 2);
}

TEST_CASE("without wait reports the rank behind is blamed, then the first that fell silent") {
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

TEST_CASE("slow steps are not a stall, whatever the timeout") {
  Ranks ranks(2);
  std::uint64_t step = 0;
  const auto all = [&](double max_silent_seconds) {
    ++step;
    for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::training, step, max_silent_seconds);
  };
  all(0);  // the first steps create kernels and touch memory
  CHECK_FALSE(ranks.run(100));
  all(0);
  CHECK_FALSE(ranks.run(590));
  for (int i = 0; i < 5; ++i) {  // steps of ten seconds
    all(10);
    CHECK_FALSE(ranks.run(10));
  }
  all(10);
  CHECK_FALSE(ranks.run(29.5));
  CHECK(ranks.run(1.5));
}

TEST_CASE("a busy rank and the ranks that wait for it get --busy-timeout") {
  Ranks ranks(2);
  ranks.say(0, Activity::training, 50);
  ranks.say(1, Activity::training, 50);
  CHECK_FALSE(ranks.run(1));
  ranks.say(0, Activity::busy, 50);  // as during a save
  CHECK_FALSE(ranks.run_waiting(1, 590));
  ranks.say(0, Activity::busy, 50);
  CHECK_FALSE(ranks.run_waiting(1, 590));
  const std::optional<Stall> stall = ranks.run_waiting(1, 20);
  REQUIRE(stall);
  CHECK(stall->rank == 0);
  CHECK(stall->what.find("busy, no report for 600") != std::string::npos);
}

TEST_CASE("short epochs with busy phases between them are watched as closely as long ones") {
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

TEST_CASE("a rank that never reaches its first step is detected, one that never reports is ignored") {
  Ranks ranks(2, {.busy_timeout = 20});
  ranks.say(0, Activity::busy, 0);
  ranks.say(1, Activity::busy, 0);
  CHECK_FALSE(ranks.run_waiting(0, 19));
  std::optional<Stall> stall = ranks.run_waiting(0, 3);
  REQUIRE(stall);
  CHECK(stall->rank == 1);
  CHECK(stall->what.rfind("training did not begin within 20.", 0) == 0);

  Ranks others(2);
  others.ranks[0].is_told = others.ranks[1].is_told = false;
  CHECK_FALSE(others.run(100000));
}

TEST_CASE("a deadlock is detected once the step time is known") {
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
  CHECK_FALSE(all_wait(ranks, 60));  // may be a slow network
  for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::training, 2);
  CHECK_FALSE(ranks.run(0.5));
  CHECK_FALSE(all_wait(ranks, 170));  // steps take a minute
  const std::optional<Stall> stall = all_wait(ranks, 20);
  REQUIRE(stall);
  CHECK(stall->what.find("all ranks have been waiting for each other for 18") != std::string::npos);

  Ranks quick(2);
  for (std::uint64_t step = 1; step < 4; ++step) {
    for (const std::size_t rank : {0U, 1U}) quick.say(rank, Activity::training, step);
    CHECK_FALSE(quick.run(0.5));
  }
  const double began = quick.now;
  CHECK(all_wait(quick, 20));
  CHECK(quick.now - began < 5);
}

TEST_CASE("after a hiccup, a deadlock is again detected as soon as before it") {
  Ranks ranks(2);
  std::uint64_t step = 0;
  const auto advance = [&](double seconds) {
    ++step;
    for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::training, step);
    REQUIRE_FALSE(ranks.run(seconds));
  };
  for (int i = 0; i < 5; ++i) advance(0.5);
  advance(3.5);
  for (int i = 0; i < 100; ++i) advance(0.5);
  for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::waiting, step);
  const double began = ranks.now;
  std::optional<Stall> stall;
  while (!stall && ranks.now < began + 20) {
    for (const std::size_t rank : {0U, 1U}) ranks.say(rank, Activity::waiting, step);
    stall = ranks.run(0.5);
  }
  REQUIRE(stall);
  CHECK(ranks.now - began < 5);
}

TEST_CASE("finished ranks are not watched and a timeout of 0 disables the watch") {
  Ranks ranks(2);
  ranks.say(0, Activity::training, 5);
  ranks.say(1, Activity::training, 5);
  ranks.watch.end(0);
  ranks.watch.end(1);
  CHECK_FALSE(ranks.run(1000));

  Ranks never(2, {.busy_timeout = 20, .stall_timeout = 0});
  never.say(0, Activity::training, 5);
  never.say(1, Activity::busy, 5);
  CHECK_FALSE(never.run(1000));
  Ranks busy(1, {.busy_timeout = 0});
  busy.say(0, Activity::busy, 5);
  CHECK_FALSE(busy.run(1000));
  busy.say(0, Activity::training, 5);
  CHECK(busy.run(5));
}

TEST_CASE("time in which the watching process was stopped does not count") {
  Ranks ranks(1);
  for (std::uint64_t step = 1; step < 4; ++step) {
    ranks.say(0, Activity::training, step);
    CHECK_FALSE(ranks.run(0.5));
  }
  CHECK_FALSE(ranks.run_waiting(0, 2));
  ranks.now += 100;
  ranks.watch.discount(100);
  CHECK_FALSE(ranks.run_waiting(0, 1));
  CHECK(ranks.run_waiting(0, 3));
}

TEST_CASE("non-finite silences neither blame nor excuse a rank forever") {
  Ranks ranks(1);
  ranks.say(0, Activity::training, 5, std::numeric_limits<double>::quiet_NaN());
  CHECK_FALSE(ranks.run(500));
  const std::optional<Stall> stall = ranks.run(200);
  CHECK(stall);
}
