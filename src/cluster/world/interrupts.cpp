// See interrupts.hpp. What a signal handler sets can only be global.
#include "cluster/world/interrupts.hpp"

#include <lockstep/core/error.hpp>

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <string_view>

namespace lockstep {
namespace {

// mpirun kills its ranks a second after SIGINT, but passes SIGUSR1 on. So does Slurm, before a job's time is over.
constexpr std::array signals{SIGINT, SIGTERM, SIGUSR1};

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
volatile std::sig_atomic_t was_interrupted = 0;  // by this signal, the first one
volatile std::sig_atomic_t tells_user = 0;
volatile std::sig_atomic_t has_trained = 0;
int depth = 0;
std::array<struct sigaction, signals.size()> former{};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void tell(std::string_view line) {
  if (tells_user == 0) return;
  const ssize_t ignored = write(STDERR_FILENO, line.data(), line.size());
  (void)ignored;
}

extern "C" void end_now(int /*signal*/) {
  tell(has_trained == 0 ? "\ninterrupted before training: stopping at once; files of earlier runs stay as they are\n"
                        : "\ninterrupted after training: stopping at once; what was written before stays\n");
  _exit(static_cast<int>(ExitCode::temporary));
}

extern "C" void note_interrupt(int signal) {
  if (was_interrupted == signal) {
    tell("\ninterrupted again: stopping at once; the last backup stays\n");
    _exit(static_cast<int>(ExitCode::temporary));
  }
  if (was_interrupted != 0) return;
  was_interrupted = signal;
  tell(signal == SIGTERM
           ? "\nSIGTERM came (mpirun sends it after Ctrl-C, and when it loses a rank): stopping soon, with a backup\n"
           : "\ninterrupted: stopping soon, with a backup; once more stops at once\n");
}

}  // namespace

void end_on_request(bool says_so) noexcept {
  tells_user = says_so ? 1 : 0;
  for (const int signal : {SIGINT, SIGUSR1}) {
    struct sigaction action {};
    (void)sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL) continue;
    action.sa_handler = end_now;
    (void)sigaction(signal, &action, nullptr);
  }
}

void begin_interruptible(bool says_so) {
  if (depth++ > 0) return;
  has_trained = 1;
  tells_user = says_so ? 1 : 0;
  for (std::size_t i = 0; i < signals.size(); ++i) {
    (void)sigaction(signals[i], nullptr, &former[i]);
    if (former[i].sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    action.sa_flags = SA_RESTART;
    (void)sigaction(signals[i], &action, nullptr);
  }
}

void end_interruptible() noexcept {
  if (--depth > 0) return;
  for (std::size_t i = 0; i < signals.size(); ++i) (void)sigaction(signals[i], &former[i], nullptr);
}

bool is_interrupted() noexcept { return was_interrupted != 0; }

}  // namespace lockstep
