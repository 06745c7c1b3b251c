// Children that were killed: those that end, and one that its parent cannot reap, as if the kernel held it. Another
// process traces that one and does not wait for it.
#include "core/killed_process.hpp"

#include "core/clock.hpp"
#include "support/catch.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>

using namespace lockstep;

namespace {

pid_t fork_sleeper() {
  const pid_t child = fork();
  if (child != 0) return child;
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // where the kernel lets parents trace only
  while (true) (void)pause();
}

/// Returns a process that traces the other one, or -1 if the kernel forbids that.
pid_t trace(pid_t traced) {
  const pid_t tracer = fork();
  if (tracer == 0) {
    for (int left = 1000; ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) != 0; --left) {
      if (left == 0) _exit(1);
      (void)poll(nullptr, 0, 1);  // `traced` may not have allowed it yet
    }
    (void)raise(SIGSTOP);  // tells the parent
    while (true) (void)pause();
  }
  int status = 0;
  return waitpid(tracer, &status, WUNTRACED) == tracer && WIFSTOPPED(status) ? tracer : -1;
}

/// A child sleeps once it had a core.
bool comes_to_sleep(pid_t child) {
  for (int left = 20'000; process_state(child) != 'S'; --left) {
    if (left == 0) return false;
    (void)poll(nullptr, 0, 1);
  }
  return true;
}

bool is_child(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace

TEST_CASE("a killed child is reaped") {
  const pid_t child = fork_sleeper();
  CHECK_FALSE(reap_within(child, 0.01));
  CHECK(comes_to_sleep(child));
  REQUIRE(kill(child, SIGKILL) == 0);
  const std::optional<int> status = reap_killed(child, 20, "the child");
  REQUIRE(status);
  CHECK(WIFSIGNALED(*status));
  CHECK_FALSE(is_child(child));
  CHECK(describe_process_state(child).empty());
  CHECK(reap_within(child, 20) == 0);  // reaped before
}

TEST_CASE("a killed child that does not end is left behind, and reaped once it has ended") {
  const pid_t held = fork_sleeper();
  const pid_t tracer = trace(held);
  REQUIRE(kill(held, SIGKILL) == 0);
  if (tracer < 0) {
    (void)waitpid(held, nullptr, 0);
    SUCCEED("skipped: this kernel lets no process trace another one");
    return;
  }
  const double began = monotonic_seconds();
  CHECK_FALSE(reap_killed(held, 0.2, "the held child"));
  CHECK(monotonic_seconds() - began < 10);
  CHECK(is_child(held));

  REQUIRE(kill(tracer, SIGKILL) == 0);
  REQUIRE(waitpid(tracer, nullptr, 0) == tracer);
  const pid_t next = fork_sleeper();
  REQUIRE(kill(next, SIGKILL) == 0);
  CHECK(reap_killed(next, 20, "the next child"));
  CHECK_FALSE(is_child(held));
}
