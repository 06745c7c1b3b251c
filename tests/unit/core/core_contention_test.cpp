#include "core/core_contention.hpp"

#include "support/catch.hpp"

#include <sched.h>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

using namespace lockstep;

TEST_CASE("threads on one core wait for each other", "[core_contention]") {
  std::atomic<bool> is_over{false};
  const auto spin = [&] {
    cpu_set_t allowed;
    (void)sched_getaffinity(0, sizeof allowed, &allowed);
    int first = 0;
    while (CPU_ISSET(first, &allowed) == 0) ++first;
    CPU_ZERO(&allowed);
    CPU_SET(first, &allowed);
    (void)sched_setaffinity(0, sizeof allowed, &allowed);
    while (!is_over) continue;
  };
  const CoreTimes before = read_core_times();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(spin);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const CoreTimes after = read_core_times();  // before threads end and take their times away
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  if (after.total() == 0) {
    WARN("skipped: this kernel tells no times of threads");
  } else {
    CHECK(waiting_share(before, after) > 0.5);
  }
}

TEST_CASE("the share of a reading that fails is 0", "[core_contention]") {
  CHECK(waiting_share({}, {}) == 0);
  CHECK(waiting_share({2, 1}, {0, 0}) == 0);
  CHECK(waiting_share({1, 1}, {2, 4}) == 0.75);
}
