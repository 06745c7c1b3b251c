// What a trainer tells when, with a clock of the test's own: what changes at once, all else five times a second.
#include "cluster/progress_reporter.hpp"

#include "cluster/socket.hpp"
#include "cluster/trainer_watch.hpp"
#include "support/catch.hpp"

#include <sys/socket.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

struct Trainer {
  static std::array<int, 2> two_ends() {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    return ends;
  }

  std::vector<Progress> said() {
    std::vector<Progress> all;
    std::array<char, 256> bytes{};
    ssize_t count = 0;
    while ((count = recv(launcher.descriptor(), bytes.data(), bytes.size(), 0)) > 0) {
      all.push_back(
          std::get<Progress>(to_message({Progress::kind, std::string(bytes.data(), static_cast<std::size_t>(count))})));
    }
    return all;
  }

  void step(double seconds) {
    reporter.step_begins();
    now += seconds;
    reporter.step_done({++steps, 2, 0.5, 64, 3, 1});
  }

  std::array<int, 2> ends = two_ends();
  Socket launcher{ends[0]};
  Socket own{ends[1]};
  double now = 10;
  std::uint64_t steps = 0;
  ProgressReporter reporter{own.descriptor(), [this]() { return now; }};
};

}  // namespace

TEST_CASE("steps are told of five times a second, a change of activity at once") {
  Trainer trainer;
  trainer.reporter.busy();
  std::vector<Progress> said = trainer.said();
  REQUIRE(said.size() == 1);
  CHECK(said[0].activity == Activity::busy);
  for (int i = 0; i < 1000; ++i) trainer.step(0.001);
  said = trainer.said();
  CHECK(said.size() >= 5);
  CHECK(said.size() <= 7);
  CHECK(said.front().activity == Activity::training);
  CHECK(said.back().step >= 800);
  CHECK(said.back().epoch == 2);
  CHECK(said.back().loss == 0.5);
  CHECK(said.back().images_per_second == Approx(64000));
  CHECK(said.back().allreduce_seconds == 3);
  CHECK(said.back().wait_seconds == 1);
  trainer.reporter.busy();
  said = trainer.said();
  REQUIRE(said.size() == 1);
  CHECK(said[0].activity == Activity::busy);
  CHECK(said[0].step == 1000);
  for (int i = 0; i < 10; ++i, trainer.now += 0.001) trainer.reporter.busy();
  CHECK(trainer.said().empty());
  trainer.now += 0.3;
  trainer.reporter.busy();
  CHECK(trainer.said().size() == 1);
}

TEST_CASE("how long silences are is learned from steps after the first, without waits and what is busy") {
  Trainer trainer;
  trainer.step(20);  // makes kernels
  CHECK(trainer.said().back().longest_silence == 0);
  trainer.reporter.step_begins();
  CHECK(trainer.said().empty());
  trainer.now += 2;
  trainer.reporter.step_done({2, 0, 0, 0, 0, 0});
  CHECK(trainer.said().back().longest_silence == Approx(2));
  trainer.reporter.busy();
  trainer.now += 50;
  trainer.step(1);
  trainer.now += 3;  // a callback
  trainer.step(0);
  CHECK(trainer.said().back().longest_silence == Approx(3));
  trainer.reporter.step_begins();
  for (int i = 0; i < 100; ++i, trainer.now += 0.1) trainer.reporter.waiting(true);
  trainer.reporter.waiting(false);
  trainer.reporter.step_done({});
  CHECK(trainer.said().back().longest_silence == Approx(3));
  trainer.reporter.forget_pace();
  CHECK(trainer.said().back().longest_silence == 0);
  trainer.step(9);
  CHECK(trainer.said().back().longest_silence == 0);
  trainer.step(1);
  CHECK(trainer.said().back().longest_silence == Approx(1));
}

TEST_CASE("a wait is told once it is long, again and again, and so is its end") {
  for (const bool is_training : {true, false}) {
    Trainer trainer;
    trainer.reporter.busy();
    if (is_training) trainer.reporter.step_begins();
    const Activity before = is_training ? Activity::training : Activity::busy;
    (void)trainer.said();
    trainer.now += 1;
    for (int i = 0; i < 100; ++i, trainer.now += 0.001) trainer.reporter.waiting(true);
    trainer.reporter.waiting(false);
    for (const Progress& report : trainer.said()) CHECK(report.activity == before);
    for (int i = 0; i < 20000; ++i, trainer.now += 0.0001) trainer.reporter.waiting(true);
    const std::vector<Progress> said = trainer.said();
    CHECK(said.size() >= 7);
    CHECK(said.size() <= 10);
    CHECK(said.back().activity == Activity::waiting);
    trainer.reporter.waiting(false);
    REQUIRE(trainer.said().back().activity == before);
  }
}

TEST_CASE("nobody listens, or listens too slowly: training goes on") {
  ProgressReporter nobody(-1);
  nobody.busy();
  nobody.step_begins();
  nobody.step_done({});
  nobody.waiting(true);
  nobody.waiting(false);

  Trainer trainer;
  for (int i = 0; i < 5000; ++i) trainer.step(1);
  CHECK(trainer.said().size() < 5000);  // no room for all
  trainer.step(1);
  CHECK(trainer.said().size() == 1);
  trainer.launcher.close();
  trainer.step(1);
}

TEST_CASE("what trainers told is kept, dated and passed on in time") {
  TrainerWatch watch(0.5);
  watch.begin(3);
  CHECK(watch.take_due(10).empty());
  CHECK(watch.ranks(10).empty());
  watch.hear(3, {}, 10);
  std::vector<Progress> due = watch.take_due(10);
  REQUIRE(due.size() == 1);
  CHECK(due[0].rank == 3);
  CHECK(due[0].activity == Activity::busy);
  CHECK(due[0].silence == 0);
  CHECK(watch.take_due(10.4).empty());
  CHECK_FALSE(watch.furthest());
  Progress report;
  report.rank = 99;  // whatever a trainer takes itself for
  report.step = 7;
  report.silence = 1e9;
  report.activity = Activity::training;
  watch.hear(3, report, 10.45);
  watch.hear(4, report, 10.45);  // there is none
  due = watch.take_due(10.5);
  REQUIRE(due.size() == 1);
  CHECK(due[0].rank == 3);
  CHECK(due[0].step == 7);
  CHECK(due[0].silence == Approx(0.05));
  due = watch.take_due(15);
  REQUIRE(due.size() == 1);
  CHECK(due[0].silence == Approx(4.55));
  CHECK(watch.ranks(16).at(0).silence == Approx(5.55));
  watch.end(3);
  CHECK(watch.take_due(20).empty());
  CHECK(watch.ranks(20).empty());
  watch.hear(3, report, 20);
  CHECK(watch.ranks(20).empty());
  REQUIRE(watch.furthest());
  CHECK(watch.furthest()->step == 7);
}
