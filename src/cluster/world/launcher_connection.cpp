// See launcher_connection.hpp. The descriptor stays open until the process ends.
#include "cluster/world/launcher_connection.hpp"

#include "cluster/net/kept_files.hpp"
#include "cluster/rendezvous/message.hpp"
#include "cluster/world/stack_report.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"
#include "core/parse_number.hpp"
#include "core/process_identity.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

namespace lockstep {

namespace {

/// Returns the descriptor of LOCKSTEP_CONTROL_FD, or -1 if it is unset or not a socket pair of a launcher.
int find_descriptor() {
  const int descriptor = parse_number<int>(value_of(current_environment(), "LOCKSTEP_CONTROL_FD")).value_or(-1);
  if (descriptor < 0) return -1;
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) return -1;
  return descriptor;
}

/// Receives requests until the launcher closes its end.
void listen_to(int descriptor, std::atomic<StopRequest>& request) {
  std::array<std::uint8_t, 64> bytes{};
  while (true) {
    pollfd entry{descriptor, POLLIN, 0};
    if (poll(&entry, 1, -1) < 0) continue;
    const ssize_t count = recv(descriptor, bytes.data(), bytes.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (count != 1 || bytes[0] > static_cast<std::uint8_t>(StopRequest::after_this_step)) continue;
    const auto received = static_cast<StopRequest>(bytes[0]);
    if (received > request.load(std::memory_order_relaxed)) request.store(received, std::memory_order_relaxed);
  }
}

/// The process that connected, which is not one that it forks.
struct ConnectedProcess {
  int descriptor;
  pid_t id;
};

/// Does not wait: the launcher knows the exit code without it.
void send_once(const Message& message) {
  const int descriptor = find_descriptor();
  if (descriptor < 0) return;
  const std::string bytes = to_datagram(message);
  (void)send(descriptor, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void send_training_done(int descriptor) {
  const std::string bytes = to_datagram(TrainingDone{});
  constexpr int patience_ms = 1000;
  pollfd entry{descriptor, POLLOUT, 0};
  (void)poll(&entry, 1, patience_ms);
  (void)send(descriptor, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/// The launcher sees the exit code of a script around this process, and cannot tell a process that has finished from
/// one that answers SIGTERM by exiting with 0.
void report_exit(int code, void* argument) {
  const std::unique_ptr<ConnectedProcess> process(static_cast<ConnectedProcess*>(argument));
  if (code == 0 && getpid() == process->id) send_training_done(process->descriptor);
}

}  // namespace

LauncherConnection::LauncherConnection()
    : descriptor_(find_descriptor()),
      progress_(descriptor_),
      request_(std::make_shared<std::atomic<StopRequest>>(StopRequest::none)) {
  if (descriptor_ < 0) return;
  (void)fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
  print_stack_on_request();
  auto process = std::make_unique<ConnectedProcess>(ConnectedProcess{descriptor_, getpid()});
  if (on_exit(report_exit, process.get()) == 0) static_cast<void>(process.release());
  progress_.report_starting();
  std::thread([descriptor = descriptor_, request = request_]() {
    listen_to(descriptor, *request);
    _exit(static_cast<int>(ExitCode::temporary));
  }).detach();
}

LockKeeper LauncherConnection::lock_keeper() const {
  if (!is_active()) return {};
  return {.process = launcher_process(), .kept = inherited_files(), .keep = [this](const FileDescriptor& lock) {
            keep_file(lock);
          }};
}

void LauncherConnection::keep_file(const FileDescriptor& file) const {
  constexpr int patience_ms = 10'000;
  pollfd entry{descriptor_, POLLOUT, 0};
  (void)poll(&entry, 1, patience_ms);
  if (!send_file(descriptor_, file))
    log_warning(
        fmt::format("cannot give a lock to the launcher: {}; if the workers restart, another job may take "
                    "this job's directory meanwhile",
                    std::generic_category().message(errno)));
}

std::string LauncherConnection::launcher_process() const {
  ucred creator{};
  socklen_t size = sizeof creator;
  if (getsockopt(descriptor_, SOL_SOCKET, SO_PEERCRED, &creator, &size) != 0 || creator.pid <= 0) return "unknown";
  return process_identity(creator.pid);
}

void LauncherConnection::report_finished() const noexcept {
  if (is_active()) send_training_done(descriptor_);
}

void LauncherConnection::report_error(const std::string& message) noexcept {
  send_once(Failed{0, message.substr(0, max_error_bytes)});
}

void LauncherConnection::report_tasks_never_came() noexcept { send_once(TasksNeverCame{}); }

}  // namespace lockstep
