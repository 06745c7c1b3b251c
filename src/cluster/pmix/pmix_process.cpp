// See pmix_process.hpp.
#include "cluster/pmix/pmix_process.hpp"

#include "core/killed_process.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr double exit_timeout_s = 1;  // once the socket is closed, and again after SIGKILL

std::string text_of(int error) { return std::generic_category().message(error); }

/// Owns the attributes of posix_spawn().
struct SpawnSettings {
  posix_spawn_file_actions_t files{};
  posix_spawnattr_t attributes{};

  SpawnSettings() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
};

std::string describe_end(int status) {
  if (!WIFSIGNALED(status)) return "exited unexpectedly";
  const int number = WTERMSIG(status);
  return fmt::format("was killed by signal {} ({})", number, strsignal(number));
}

pid_t spawn(const std::string& program, const Socket& control) {
  SpawnSettings settings;
  const int number = control.descriptor();
  posix_spawn_file_actions_addopen(&settings.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&settings.files, number, number);  // keeps it open in the child
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&settings.attributes, &none);
  posix_spawnattr_setsigdefault(&settings.attributes, &all);
  posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string name = "lockstep";
  std::string command = "pmix-server";
  std::string argument = std::to_string(number);
  std::array<char*, 4> arguments{name.data(), command.data(), argument.data(), nullptr};
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, program.c_str(), &settings.files, &settings.attributes, arguments.data(), environ);
  if (error != 0) throw IoError(fmt::format("cannot start {} pmix-server: {}", program, text_of(error)));
  return pid;
}

}  // namespace

PmixProcess::PmixProcess(const std::string& program, const PmixJob& job)
    : num_served_ranks_(job.served.size()), reader_(max_pmix_message_bytes) {
  check_job(job);
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw IoError(fmt::format("socketpair failed: {}", text_of(errno)));
  }
  socket_ = Socket(ends[0]);
  const Socket theirs(ends[1]);
  pid_ = spawn(program, theirs);
  send(PmixMessage::start, to_body(job));
}

short PmixProcess::events() const noexcept { return static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT); }

void PmixProcess::send(PmixMessage kind, std::string body) {
  if (!socket_) return;
  unsent_ += encode({static_cast<std::uint16_t>(kind), std::move(body)});
  flush();
}

void PmixProcess::flush() {
  const Transfer transfer = send_some(socket_, std::as_bytes(std::span(unsent_)));
  unsent_.erase(0, transfer.bytes);
  if (transfer.end == TransferEnd::closed) unsent_.clear();  // handle() reports the reason
}

void PmixProcess::answer(const PmixFenceDone& done) { send(PmixMessage::fence_done, to_body(done)); }

PmixEvent PmixProcess::read(const Frame& frame) const {
  switch (static_cast<PmixMessage>(frame.kind)) {
    case PmixMessage::ready: {
      PmixReady ready = read_ready(frame.body);
      if (ready.environments.size() != num_served_ranks_) throw DataError("it serves other ranks than requested");
      return ready;
    }
    case PmixMessage::fence: return read_fence(frame.body);
    case PmixMessage::abort: return read_abort(frame.body);
    case PmixMessage::failed: return PmixLost{frame.body};
    default: throw DataError(fmt::format("unexpected message kind {}", frame.kind));
  }
}

std::vector<PmixEvent> PmixProcess::handle() {
  std::vector<PmixEvent> events;
  if (!socket_) return events;
  flush();
  bool closed = false;
  try {
    std::array<std::byte, 16384> bytes{};
    Transfer transfer;
    do {
      transfer = receive_some(socket_, bytes);
      reader_.add(std::span(bytes).first(transfer.bytes));
    } while (transfer.end == TransferEnd::done);
    while (const auto frame = reader_.next()) {
      events.push_back(read(*frame));
      if (std::holds_alternative<PmixLost>(events.back())) break;
    }
    closed = transfer.end == TransferEnd::closed;
  } catch (const DataError& error) {
    events.emplace_back(PmixLost{fmt::format("the PMIx server sent an invalid message: {}", error.what())});
  }
  const bool is_lost = !events.empty() && std::holds_alternative<PmixLost>(events.back());
  if (closed && !is_lost) events.emplace_back(PmixLost{fmt::format("the PMIx server {}", describe_end(reap()))});
  if (closed || is_lost) {
    unsent_.clear();
    socket_.close();
  }
  return events;
}

void PmixProcess::end() noexcept {
  socket_.close();
  unsent_.clear();
  (void)reap();
}

/// Returns the status of waitpid(), or 0 if the process was already reaped or is left behind.
int PmixProcess::reap() noexcept {
  if (pid_ < 0) return 0;
  std::optional<int> status = reap_within(pid_, exit_timeout_s);
  if (!status) {
    (void)kill(pid_, SIGKILL);
    status = reap_killed(pid_, exit_timeout_s, "the PMIx server");
  }
  pid_ = -1;
  return status.value_or(0);
}

}  // namespace lockstep
