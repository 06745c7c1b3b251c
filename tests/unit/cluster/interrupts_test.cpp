// What Ctrl-C does while no model trains. train_interruption_test.py covers the rest.
#include "cluster/world/interrupts.hpp"

#include <lockstep/core/error.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("a request to stop that is ignored stays ignored", "[interrupts]") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    (void)std::signal(SIGUSR1, SIG_IGN);
    end_on_request(false);
    (void)raise(SIGUSR1);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("a request to stop ends a process that does not train, also before and after a loop", "[interrupts]") {
  for (const bool has_trained : {false, true}) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      end_on_request(false);
      if (has_trained) {
        begin_interruptible(false);
        end_interruptible();
      }
      (void)raise(SIGUSR1);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == static_cast<int>(ExitCode::temporary));
  }
}
