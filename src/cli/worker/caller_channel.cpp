// See caller_channel.hpp. The descriptor stays open until the process ends.
#include "cli/worker/caller_channel.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cmath>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace lockstep {

namespace {

constexpr int tick_ms = 1000;

/// Waits until the caller has closed its end, then ends this process.
[[noreturn]] void watch(int descriptor, const std::filesystem::path& temporary) {
  pollfd entry{descriptor, 0, 0};
  while (::poll(&entry, 1, -1) < 0 || (entry.revents & POLLHUP) == 0) {
  }
  std::error_code ignored;
  if (!temporary.empty()) std::filesystem::remove_all(temporary, ignored);
  _exit(static_cast<int>(ExitCode::usage));
}

}  // namespace

CallerChannel::CallerChannel(int descriptor, std::filesystem::path temporary) : descriptor_(descriptor) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) {
    throw UsageError("--channel is not a socket of a caller; the Python package starts this command");
  }
  (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  std::thread(watch, descriptor, std::move(temporary)).detach();
}

void CallerChannel::send(const nlohmann::json& message) const {
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  while (::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    throw UsageError(
        fmt::format("cannot send to the program that called lockstep.fit: {}", std::generic_category().message(errno)));
  }
}

std::optional<nlohmann::json> CallerChannel::poll() const {
  const ssize_t size = recv(descriptor_, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  if (size <= 0) return std::nullopt;
  std::string text(static_cast<std::size_t>(size), '\0');
  if (recv(descriptor_, text.data(), text.size(), 0) != size) return std::nullopt;
  nlohmann::json message = nlohmann::json::parse(text, nullptr, false);
  if (!message.is_object())
    throw InternalError(
        "the program that called lockstep.fit sent something other than a JSON object; please report this");
  return message;
}

nlohmann::json CallerChannel::receive(const std::function<void()>& while_waiting) const {
  while (true) {
    if (auto message = poll()) return *std::move(message);
    pollfd entry{descriptor_, POLLIN, 0};
    if (::poll(&entry, 1, tick_ms) == 0) while_waiting();
  }
}

nlohmann::json to_json_number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

}  // namespace lockstep
