// See container_init.hpp.
#include "cluster/launcher/container_init.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>

namespace lockstep {

namespace {

/// Exits when `child` ends.
[[noreturn]] void run_init(pid_t child, const sigset_t& signals) {
  while (true) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended == child) _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    if (ended > 0) continue;
    siginfo_t info{};
    const int number = sigwaitinfo(&signals, &info);
    if (number > 0 && number != SIGCHLD) (void)kill(child, number);
  }
}

}  // namespace

void run_init_if_pid_1() {
  if (getpid() != 1) return;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&signals, number);
  (void)std::signal(SIGCHLD, SIG_DFL);
  sigset_t before;
  if (sigprocmask(SIG_BLOCK, &signals, &before) != 0) throw InternalError("sigprocmask failed");
  const pid_t child = fork();
  if (child < 0)
    throw IoError(fmt::format("fork failed: {}; raise the process limit of the container",
                              std::generic_category().message(errno)));
  if (child > 0) run_init(child, signals);
  (void)sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace lockstep
