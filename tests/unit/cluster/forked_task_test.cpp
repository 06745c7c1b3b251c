// Tasks in a forked process that return a result or time out.
#include "cluster/net/forked_task.hpp"

#include "core/clock.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <poll.h>
#include <unistd.h>

#include <optional>
#include <string>

using namespace lockstep;

TEST_CASE("forked tasks return a result or time out") {
  ForkedTask quick_one([]() { return std::string(100'000, 'x'); }, Deadline::after(10));
  CHECK(quick_one.is_running());
  std::optional<std::string> answer;
  while (!answer) {
    pollfd entry{quick_one.descriptor(), POLLIN, 0};
    (void)poll(&entry, 1, 1000);
    answer = quick_one.take_result();
  }
  CHECK(answer->size() == 100'000);
  CHECK_FALSE(quick_one.is_running());
  CHECK_FALSE(quick_one.take_result());
  ForkedTask fails([]() -> std::string { throw DataError("no"); }, Deadline::after(10));
  while (!(answer = fails.take_result())) (void)poll(nullptr, 0, 5);
  CHECK(answer->empty());
  ForkedTask late([]() { return sleep(60), std::string("late"); }, Deadline::after(0.1));
  while (!(answer = late.take_result())) (void)poll(nullptr, 0, 5);
  CHECK(answer->empty());
  const double began = monotonic_seconds();
  {
    ForkedTask forgotten([]() { return sleep(60), std::string(); }, Deadline::never());
  }
  CHECK(monotonic_seconds() - began < 5);
}
