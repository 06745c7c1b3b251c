#include "core/clock.hpp"

#include <chrono>
#include <ctime>
#include <thread>

#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("the monotonic clock counts seconds", "[clock]") {
  const double before = monotonic_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double elapsed = monotonic_seconds() - before;
  CHECK(elapsed >= 0.02);
  CHECK(elapsed < 5);
}

TEST_CASE("the wall clock is the system's", "[clock]") {
  CHECK(std::abs(wall_clock_seconds() - static_cast<double>(std::time(nullptr))) <= 2);
}

TEST_CASE("a process reports its age", "[clock]") {
  const double age = seconds_since_process_start();
  CHECK(age >= 0);
  CHECK(age < 3600);  // would fail in another unit
  const double before = monotonic_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double slept = monotonic_seconds() - before;
  CHECK(seconds_since_process_start() - age == Approx(slept).margin(0.03));
}
