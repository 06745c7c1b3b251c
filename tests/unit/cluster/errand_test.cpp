// Errands: work in a process of its own that brings an answer, or none in time.
#include "cluster/errand.hpp"

#include "core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "support/catch.hpp"

#include <poll.h>
#include <unistd.h>

#include <optional>
#include <string>

using namespace lockstep;

TEST_CASE("errands bring an answer, or none in time") {
  Errand quick_one([]() { return std::string(100'000, 'x'); }, Deadline::after(10));
  CHECK(quick_one.runs());
  std::optional<std::string> answer;
  while (!answer) {
    pollfd entry{quick_one.descriptor(), POLLIN, 0};
    (void)poll(&entry, 1, 1000);
    answer = quick_one.take();
  }
  CHECK(answer->size() == 100'000);
  CHECK_FALSE(quick_one.runs());
  CHECK_FALSE(quick_one.take());
  Errand fails([]() -> std::string { throw DataError("no"); }, Deadline::after(10));
  while (!(answer = fails.take())) (void)poll(nullptr, 0, 5);
  CHECK(answer->empty());
  Errand late([]() { return sleep(60), std::string("late"); }, Deadline::after(0.1));
  while (!(answer = late.take())) (void)poll(nullptr, 0, 5);
  CHECK(answer->empty());
  const double began = monotonic_seconds();
  {
    Errand forgotten([]() { return sleep(60), std::string(); }, Deadline::never());
  }
  CHECK(monotonic_seconds() - began < 5);
}
