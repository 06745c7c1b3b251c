// Who computes what in a round, and how stale gradients may become.
#include "collective/parameter_server/ticket_queue.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

UpdatePolicy asynchronous(std::optional<std::uint64_t> max_staleness = {}) {
  return {.gradients = 1, .is_asynchronous = true, .max_staleness = max_staleness};
}

/// The step and the slice that a worker gets, which must be the next to get one.
std::pair<std::uint64_t, std::size_t> next_for(TicketQueue& queue, std::size_t worker) {
  const auto grant = queue.next_grant();
  REQUIRE(grant);
  REQUIRE(grant->worker == worker);
  REQUIRE_FALSE(grant->is_end);
  return {grant->step, grant->slice};
}

using Slice = std::pair<std::uint64_t, std::size_t>;

}  // namespace

TEST_CASE("asynchronous tickets are all slices of a round in order, to whoever asks", "[tickets]") {
  TicketQueue queue(asynchronous(), 2);
  queue.open({3, 5});
  for (const std::size_t worker : {1, 0}) queue.ask(worker);
  CHECK(next_for(queue, 1) == Slice{3, 0});
  CHECK(next_for(queue, 0) == Slice{3, 1});
  CHECK_FALSE(queue.next_grant());
  for (const std::size_t slice : {0, 1}) {
    queue.ask(1);  // the other worker is slow
    CHECK(next_for(queue, 1) == Slice{4, slice});
  }
  for (const std::size_t worker : {1, 0}) {
    queue.ask(worker);
    const auto end = queue.next_grant();
    REQUIRE(end);
    CHECK(end->worker == worker);
    CHECK(end->is_end);
    CHECK(end->step == 5);
  }
}

TEST_CASE("a chief that coordinates learns which steps have begun, and gets no slice", "[tickets]") {
  TicketQueue queue({.gradients = 1, .is_asynchronous = true, .chief_coordinates = true}, 3);
  queue.open({2, 4});
  queue.ask(0);
  CHECK_FALSE(queue.next_grant());
  queue.ask(2);
  CHECK(next_for(queue, 2) == Slice{2, 0});
  CHECK(next_for(queue, 0) == Slice{2, 2});
  queue.ask(0);
  queue.ask(1);
  CHECK(next_for(queue, 1) == Slice{2, 1});
  CHECK_FALSE(queue.next_grant());
  queue.ask(1);
  CHECK(next_for(queue, 1) == Slice{3, 0});
  CHECK(next_for(queue, 0) == Slice{3, 2});
  queue.ask(0);
  CHECK_FALSE(queue.next_grant());
  queue.ask(2);
  CHECK(next_for(queue, 2) == Slice{3, 1});
  queue.ask(1);
  for (const std::size_t worker : {0, 1}) {
    const auto end = queue.next_grant();
    REQUIRE(end);
    CHECK(end->worker == worker);
    CHECK(end->is_end);
  }
}

TEST_CASE("the ticket of a lost worker goes to another one", "[tickets]") {
  TicketQueue queue(asynchronous(), 3);
  queue.open({0, 2});
  for (const std::size_t worker : {0, 1, 2}) queue.ask(worker);
  for (const std::size_t worker : {0, 1, 2}) CHECK(next_for(queue, worker) == Slice{0, worker});
  queue.forget(2);
  queue.ask(0);
  CHECK(next_for(queue, 0) == Slice{0, 2});
  queue.ask(2);  // its successor
  CHECK(next_for(queue, 2) == Slice{1, 0});
  queue.ask(1);
  CHECK(next_for(queue, 1) == Slice{1, 1});
  queue.ask(0);
  CHECK(next_for(queue, 0) == Slice{1, 2});
  queue.ask(1);
  CHECK(queue.next_grant()->is_end);
  queue.forget(0);  // after the last ticket was handed out
  queue.ask(2);
  CHECK(next_for(queue, 2) == Slice{1, 2});
  queue.ask(0);
  CHECK(queue.next_grant()->is_end);
}

TEST_CASE("a round that is closed ends with the steps that have begun", "[tickets]") {
  SECTION("asynchronous") {
    TicketQueue queue(asynchronous(), 3);
    queue.open({0, 10});
    for (int i = 0; i < 4; ++i) {
      queue.ask(0);
      static_cast<void>(next_for(queue, 0));
    }
    queue.close();
    for (const std::size_t slice : {1, 2}) {
      queue.ask(0);
      CHECK(next_for(queue, 0) == Slice{1, slice});
    }
    queue.ask(0);
    CHECK(queue.next_grant()->is_end);
  }
  SECTION("synchronous") {
    TicketQueue queue({.gradients = 1}, 2);
    queue.open({0, 10});
    queue.ask(0);
    CHECK(next_for(queue, 0) == Slice{0, 0});
    queue.close();
    queue.end_step();
    queue.ask(0);
    CHECK(queue.next_grant()->step == 1);
  }
}

TEST_CASE("with the first M of n gradients, a worker gets its slice of the step that is about to be made",
          "[tickets]") {
  TicketQueue queue({.gradients = 2}, 3);
  queue.open({7, 9});
  for (const std::size_t worker : {0, 1, 2}) queue.ask(worker);
  for (const std::size_t worker : {0, 1, 2}) CHECK(next_for(queue, worker) == Slice{7, worker});
  for (const std::size_t worker : {0, 1}) queue.ask(worker);
  CHECK_FALSE(queue.next_grant());  // the step was not made yet
  queue.end_step();
  for (const std::size_t worker : {0, 1}) CHECK(next_for(queue, worker) == Slice{8, worker});
  queue.end_step();
  for (const std::size_t worker : {0, 1, 2}) queue.ask(worker);  // the last one has missed a step
  for (int i = 0; i < 3; ++i) CHECK(queue.next_grant()->is_end);
}

TEST_CASE("no gradient becomes staler than the bound, whichever worker is slow", "[tickets]") {
  std::mt19937 random(7);
  for (const std::size_t workers : {1, 2, 3, 5}) {
    for (const std::uint64_t bound : {1, 2, 3, 7, 20}) {
      CAPTURE(workers, bound);
      TicketQueue queue(asynchronous(bound), workers);
      queue.open({0, 40});
      std::vector<std::optional<std::uint64_t>> weights(workers);  // of workers with a ticket: updates before them
      std::set<Slice> computed;
      std::uint64_t updates = 0;
      std::uint64_t stalest = 0;
      std::size_t ended = 0;
      for (std::size_t worker = 0; worker < workers; ++worker) queue.ask(worker);
      while (ended < workers) {
        while (const auto grant = queue.next_grant()) {
          ended += grant->is_end ? 1 : 0;
          if (grant->is_end) continue;
          weights[grant->worker] = updates;
          CHECK(computed.insert({grant->step, grant->slice}).second);
        }
        std::vector<std::size_t> busy;
        for (std::size_t worker = 0; worker < workers; ++worker) {
          if (weights[worker]) busy.push_back(worker);
        }
        if (busy.empty()) break;  // else all wait for each other
        // The first worker is the slowest.
        const std::size_t worker = random() % 10 == 0 ? busy.front() : busy[random() % busy.size()];
        stalest = std::max(stalest, updates++ - *std::exchange(weights[worker], std::nullopt));
        queue.ask(worker);
      }
      CHECK(ended == workers);
      CHECK(computed.size() == 40 * workers);
      CHECK(stalest <= bound);
      CHECK(stalest >= std::min<std::uint64_t>(bound, workers - 1) / 2);  // the bound costs no more than it must
    }
  }
}
