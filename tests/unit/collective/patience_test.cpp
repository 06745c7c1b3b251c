// How a wait is configured, what it says and when it ends.
#include "collective/patience.hpp"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "core/cores.hpp"
#include "lockstep/core/error.hpp"
#include "support/catch.hpp"

using namespace lockstep;

namespace {

/// What `action` prints on standard error.
template <typename Action>
std::string stderr_of(Action action) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  REQUIRE(file);
  const int saved = dup(STDERR_FILENO);
  REQUIRE(saved >= 0);
  REQUIRE(dup2(fileno(file.get()), STDERR_FILENO) >= 0);
  action();
  REQUIRE(dup2(saved, STDERR_FILENO) >= 0);
  close(saved);
  std::string text;
  std::rewind(file.get());
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) text += static_cast<char>(c);
  return text;
}

}  // namespace

TEST_CASE("the timeout comes from the environment") {
  REQUIRE(WaitPolicy::of({}, 1).timeout == 600);
  REQUIRE(WaitPolicy::of({{"LOCKSTEP_COLLECTIVE_TIMEOUT", "0.25"}}, 1).timeout == 0.25);
  REQUIRE(WaitPolicy::of({{"LOCKSTEP_COLLECTIVE_TIMEOUT", "0"}}, 1).timeout == 0);
  for (const char* wrong : {"", "soon", "-1", "10s", "inf", "nan", " 5", "1e999"}) {
    CAPTURE(wrong);
    REQUIRE_THROWS_AS(WaitPolicy::of({{"LOCKSTEP_COLLECTIVE_TIMEOUT", wrong}}, 1), UsageError);
  }
}

TEST_CASE("ranks that outnumber the cores do not spin") {
  REQUIRE(available_cores() >= 1);
  REQUIRE(WaitPolicy::of({}, available_cores()).spin);
  REQUIRE_FALSE(WaitPolicy::of({}, available_cores() + 1).spin);
}

TEST_CASE("a wait says what it waits for, again and again") {
  WaitPolicy policy;
  policy.report_every = 0.02;
  policy.timeout = 0;
  const std::string said = stderr_of([&] {
    Patience patience(policy);
    for (int times = 0; times < 2;) {
      if (!patience.pass()) continue;
      patience.speak("rank 7 to wake up");
      ++times;
    }
    REQUIRE(patience.seconds() >= 0.04);
  });
  const std::size_t first = said.find("waiting for rank 7 to wake up");
  REQUIRE(first != std::string::npos);
  REQUIRE(said.find("waiting for rank 7 to wake up", first + 1) != std::string::npos);
}

TEST_CASE("a wait ends in an error that names what never came") {
  WaitPolicy policy;
  policy.timeout = 0.05;
  Patience patience(policy);
  std::string failure;
  while (failure.empty()) {
    if (!patience.pass()) continue;
    try {
      patience.speak("rank 7 to wake up");
    } catch (const PeerError& error) {
      failure = error.what();
    }
  }
  REQUIRE(patience.seconds() >= 0.05);
  REQUIRE(failure.find("rank 7 to wake up") != std::string::npos);
  REQUIRE(failure.find("LOCKSTEP_COLLECTIVE_TIMEOUT") != std::string::npos);
}

TEST_CASE("whoever wants to know is told of long waits, and of their end") {
  int still = 0;
  int over = 0;
  WaitPolicy policy;
  policy.while_waiting = [&](bool is_still) { ++(is_still ? still : over); };
  { const Patience at_once(policy); }
  CHECK(still + over == 0);
  {
    Patience patience(policy);
    while (patience.seconds() < 0.05) (void)patience.pass();
    CHECK(still > 0);
    CHECK(over == 0);
  }
  CHECK(over == 1);
}

TEST_CASE("a short wait says nothing") {
  WaitPolicy policy;
  policy.report_every = 1e9;
  policy.timeout = 0;
  REQUIRE(stderr_of([&] {
            Patience patience(policy);
            while (patience.seconds() < 0.03) {
              if (patience.pass()) patience.speak("nobody");
            }
          }).empty());
}
