// Configuration, messages and timeouts of waits.
#include "collective/wait_loop.hpp"

#include "core/available_cpus.hpp"
#include "support/catch.hpp"
#include "support/stderr_of.hpp"

#include <lockstep/core/error.hpp>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include <cstdio>
#include <memory>
#include <string>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("the timeout is that of the communicator's options") {
  REQUIRE(make_wait_policy({}, 1).timeout == 600);
  REQUIRE(make_wait_policy({.timeout = 0.25}, 1).timeout == 0.25);
}

TEST_CASE("ranks that outnumber the cores do not spin") {
  REQUIRE(available_cpu_count() >= 1);
  REQUIRE(make_wait_policy({}, available_cpu_count()).spin);
  REQUIRE_FALSE(make_wait_policy({}, available_cpu_count() + 1).spin);
}

TEST_CASE("a wait reports repeatedly what it waits for") {
  WaitPolicy policy;
  policy.report_interval = 0.02;
  policy.timeout = 0;
  const std::string said = stderr_of([&] {
    WaitLoop wait(policy);
    for (int times = 0; times < 2;) {
      if (!wait.pause()) continue;
      wait.report("rank 7 to wake up");
      ++times;
    }
    REQUIRE(wait.seconds() >= 0.04);
  });
  const std::size_t first = said.find("waiting for rank 7 to wake up");
  REQUIRE(first != std::string::npos);
  REQUIRE(said.find("waiting for rank 7 to wake up", first + 1) != std::string::npos);
}

TEST_CASE("a wait times out with an error that names what is missing") {
  WaitPolicy policy;
  policy.timeout = 0.05;
  WaitLoop wait(policy);
  std::string failure;
  while (failure.empty()) {
    if (!wait.pause()) continue;
    try {
      wait.report("rank 7 to wake up");
    } catch (const PeerError& error) {
      failure = error.what();
    }
  }
  REQUIRE(wait.seconds() >= 0.05);
  REQUIRE(failure.find("rank 7 to wake up") != std::string::npos);
  REQUIRE(failure.find("LOCKSTEP_COLLECTIVE_TIMEOUT") != std::string::npos);
}

TEST_CASE("long waits and their end are reported to the observer") {
  int still = 0;
  int over = 0;
  WaitPolicy policy;
  policy.while_waiting = [&](bool is_still) { ++(is_still ? still : over); };
  { const WaitLoop at_once(policy); }
  CHECK(still + over == 0);
  {
    WaitLoop wait(policy);
    while (wait.seconds() < 0.05) (void)wait.pause();
    CHECK(still > 0);
    CHECK(over == 0);
  }
  CHECK(over == 1);
}

TEST_CASE("a short wait reports nothing") {
  WaitPolicy policy;
  policy.report_interval = 1e9;
  policy.timeout = 0;
  REQUIRE(stderr_of([&] {
            WaitLoop wait(policy);
            while (wait.seconds() < 0.03) {
              if (wait.pause()) wait.report("nobody");
            }
          }).empty());
}

TEST_CASE("time in which a stopped process does not run is not waiting") {
  const pid_t child = fork();
  if (child == 0) {
    WaitPolicy policy;
    policy.timeout = 3;
    policy.report_interval = 1e9;
    WaitLoop wait(policy);
    const auto began = std::chrono::steady_clock::now();
    while (!wait.pause()) {
    }
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    _exit(passed > 5.5 ? 0 : 1);  // three seconds of waiting, and three in which it was stopped
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  REQUIRE(kill(child, SIGSTOP) == 0);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  REQUIRE(kill(child, SIGCONT) == 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
