// See launcher_link.hpp. The descriptor belongs to the process, from its start to its end.
#include "cluster/launcher_link.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

/// -1 for none. A number that was left over from somewhere else is none.
int find_descriptor() {
  const std::string text = value_of(current_environment(), "LOCKSTEP_CONTROL_FD");
  int descriptor = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), descriptor);
  if (error != std::errc() || end != text.data() + text.size() || descriptor < 0) return -1;
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) return -1;
  return descriptor;
}

/// Until the other end is closed.
void listen_to(int descriptor, std::atomic<Request>& request) {
  std::array<std::uint8_t, 64> bytes{};
  while (true) {
    pollfd entry{descriptor, POLLIN, 0};
    if (poll(&entry, 1, -1) < 0) continue;
    const ssize_t count = recv(descriptor, bytes.data(), bytes.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return;
    if (count != 1 || bytes[0] > static_cast<std::uint8_t>(Request::leave)) continue;
    const auto asked = static_cast<Request>(bytes[0]);
    if (asked > request.load(std::memory_order_relaxed)) request.store(asked, std::memory_order_relaxed);
  }
}

}  // namespace

LauncherLink::LauncherLink()
    : descriptor_(find_descriptor()),
      progress_(descriptor_),
      request_(std::make_shared<std::atomic<Request>>(Request::none)) {
  if (descriptor_ < 0) return;
  (void)fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
  progress_.busy();
  std::thread([descriptor = descriptor_, request = request_]() {
    listen_to(descriptor, *request);
    _exit(static_cast<int>(ExitCode::temporary));
  }).detach();
}

}  // namespace lockstep
