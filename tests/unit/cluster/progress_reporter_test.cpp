// When a trainer reports, by a simulated clock: changes of activity at once, steps five times per second.
#include "cluster/world/progress_reporter.hpp"

#include "cluster/launcher/progress_tracker.hpp"
#include "cluster/net/socket.hpp"
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

  std::vector<Progress> reports() {
    std::vector<Progress> all;
    std::array<char, 256> bytes{};
    ssize_t count = 0;
    while ((count = recv(launcher.descriptor(), bytes.data(), bytes.size(), 0)) > 0) {
      all.push_back(std::get<Progress>(from_datagram({bytes.data(), static_cast<std::size_t>(count)})));
    }
    return all;
  }

  void step(double seconds) {
    reporter.report_step_begin();
    now += seconds;
    reporter.report_step_end({++steps, 2, 0.5, 64, 3, 1});
  }

  std::array<int, 2> ends = two_ends();
  Socket launcher{ends[0]};
  Socket own{ends[1]};
  double now = 10;
  std::uint64_t steps = 0;
  ProgressReporter reporter{own.descriptor(), [this]() { return now; }};
};

}  // namespace

TEST_CASE("steps are reported five times per second and changes of activity at once") {
  Trainer trainer;
  trainer.reporter.report_busy();
  std::vector<Progress> said = trainer.reports();
  REQUIRE(said.size() == 1);
  CHECK(said[0].activity == Activity::busy);
  for (int i = 0; i < 1000; ++i) trainer.step(0.001);
  said = trainer.reports();
  CHECK(said.size() >= 5);
  CHECK(said.size() <= 7);
  CHECK(said.front().activity == Activity::training);
  CHECK(said.back().step >= 800);
  CHECK(said.back().epoch == 2);
  CHECK(said.back().loss == 0.5);
  CHECK(said.back().examples_per_second == Approx(64000));
  CHECK(said.back().allreduce_seconds == 3);
  CHECK(said.back().wait_seconds == 1);
  trainer.reporter.report_busy();
  said = trainer.reports();
  REQUIRE(said.size() == 1);
  CHECK(said[0].activity == Activity::busy);
  CHECK(said[0].step == 1000);
  for (int i = 0; i < 10; ++i, trainer.now += 0.001) trainer.reporter.report_busy();
  CHECK(trainer.reports().empty());
  trainer.now += 0.3;
  trainer.reporter.report_busy();
  CHECK(trainer.reports().size() == 1);
}

TEST_CASE("expected silence is learned from steps after the first, excluding waits and busy phases") {
  Trainer trainer;
  trainer.step(20);  // the first step, which creates kernels
  CHECK(trainer.reports().back().max_silent_seconds == 0);
  trainer.reporter.report_step_begin();
  CHECK(trainer.reports().empty());
  trainer.now += 2;
  trainer.reporter.report_step_end({2, 0, 0, 0, 0, 0});
  CHECK(trainer.reports().back().max_silent_seconds == Approx(2));
  trainer.reporter.report_busy();
  trainer.now += 50;
  trainer.step(1);
  trainer.now += 3;  // a callback
  trainer.step(0);
  CHECK(trainer.reports().back().max_silent_seconds == Approx(3));
  trainer.reporter.report_step_begin();
  for (int i = 0; i < 100; ++i, trainer.now += 0.1) trainer.reporter.report_waiting(true);
  trainer.reporter.report_waiting(false);
  trainer.reporter.report_step_end({});
  CHECK(trainer.reports().back().max_silent_seconds == Approx(3));
  trainer.reporter.reset_pace();
  CHECK(trainer.reports().back().max_silent_seconds == 0);
  trainer.step(9);
  CHECK(trainer.reports().back().max_silent_seconds == 0);
  trainer.step(1);
  CHECK(trainer.reports().back().max_silent_seconds == Approx(1));
}

TEST_CASE("a hiccup is forgotten after a hundred steps") {
  Trainer trainer;
  for (int i = 0; i < 10; ++i) trainer.step(0.3);
  trainer.step(10);
  CHECK(trainer.reports().back().max_silent_seconds == Approx(10));
  for (int i = 0; i < 49; ++i) trainer.step(0.3);
  CHECK(trainer.reports().back().max_silent_seconds == Approx(10));
  for (int i = 0; i < 51; ++i) trainer.step(0.3);
  CHECK(trainer.reports().back().max_silent_seconds == Approx(0.3));
}

TEST_CASE("long waits are reported repeatedly, and so is their end") {
  for (const bool is_training : {true, false}) {
    Trainer trainer;
    trainer.reporter.report_busy();
    if (is_training) trainer.reporter.report_step_begin();
    const Activity before = is_training ? Activity::training : Activity::busy;
    (void)trainer.reports();
    trainer.now += 1;
    for (int i = 0; i < 100; ++i, trainer.now += 0.001) trainer.reporter.report_waiting(true);
    trainer.reporter.report_waiting(false);
    for (const Progress& report : trainer.reports()) CHECK(report.activity == before);
    for (int i = 0; i < 20000; ++i, trainer.now += 0.0001) trainer.reporter.report_waiting(true);
    const std::vector<Progress> said = trainer.reports();
    CHECK(said.size() >= 7);
    CHECK(said.size() <= 10);
    CHECK(said.back().activity == Activity::waiting);
    trainer.reporter.report_waiting(false);
    REQUIRE(trainer.reports().back().activity == before);
  }
}

TEST_CASE("a missing or slow reader does not block training") {
  ProgressReporter nobody(-1);
  nobody.report_busy();
  nobody.report_step_begin();
  nobody.report_step_end({});
  nobody.report_waiting(true);
  nobody.report_waiting(false);

  Trainer trainer;
  for (int i = 0; i < 5000; ++i) trainer.step(1);
  CHECK(trainer.reports().size() < 5000);  // the socket's buffer was full
  trainer.step(1);
  CHECK(trainer.reports().size() == 1);
  trainer.launcher.close();
  trainer.step(1);
}

TEST_CASE("the time for which a launcher was suspended is no silence of its trainers") {
  ProgressTracker watch(0.5);
  watch.begin(0);
  watch.update(0, {}, 10);
  CHECK(watch.take_due_reports(10.2).size() == 1);
  CHECK(watch.take_due_reports(16.2).at(0).silent_seconds == Approx(0.2));
  CHECK(watch.take_due_reports(16.9).at(0).silent_seconds == Approx(0.9));
}

TEST_CASE("trainer reports are stored with a timestamp and forwarded in time") {
  ProgressTracker watch(0.5);
  watch.begin(3);
  CHECK(watch.take_due_reports(10).empty());
  CHECK(watch.reports(10).empty());
  watch.update(3, {}, 10);
  std::vector<Progress> due = watch.take_due_reports(10);
  REQUIRE(due.size() == 1);
  CHECK(due[0].rank == 3);
  CHECK(due[0].activity == Activity::busy);
  CHECK(due[0].silent_seconds == 0);
  CHECK(watch.take_due_reports(10.4).empty());
  CHECK_FALSE(watch.latest_progress());
  Progress report;
  report.rank = 99;  // a trainer's own rank must be ignored
  report.step = 7;
  report.silent_seconds = 1e9;
  report.activity = Activity::training;
  watch.update(3, report, 10.45);
  watch.update(4, report, 10.45);  // there is no rank 4
  due = watch.take_due_reports(10.5);
  REQUIRE(due.size() == 1);
  CHECK(due[0].rank == 3);
  CHECK(due[0].step == 7);
  CHECK(due[0].silent_seconds == Approx(0.05));
  for (double now = 11; now < 15; now += 0.5) CHECK(watch.take_due_reports(now).size() == 1);
  due = watch.take_due_reports(15);
  REQUIRE(due.size() == 1);
  CHECK(due[0].silent_seconds == Approx(4.55));
  CHECK(watch.reports(16).at(0).silent_seconds == Approx(5.55));
  watch.begin(5);
  report.step = 9;
  report.backups.skipped = 4;  // of rank 5, whose counters are others
  watch.update(5, report, 17);
  REQUIRE(watch.latest_progress());
  CHECK(watch.latest_progress()->rank == 3);
  watch.end(5);
  watch.end(3);
  CHECK(watch.take_due_reports(20).empty());
  CHECK(watch.reports(20).empty());
  watch.update(3, report, 20);
  CHECK(watch.reports(20).empty());
  REQUIRE(watch.latest_progress());
  CHECK(watch.latest_progress()->step == 7);
}
