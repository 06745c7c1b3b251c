// The launcher's side of a generation's PMIx server: starts it as a process of its own, speaks with it without ever
// waiting, so that it fits a poll loop, and ends it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cluster/frame.hpp"
#include "cluster/pmix_messages.hpp"
#include "cluster/socket.hpp"

namespace lockstep {

/// The server is gone, or was never able to serve; ranks cannot outlive it.
struct PmixLost {
  std::string why;
};

using PmixEvent = std::variant<PmixReady, PmixFence, PmixAbort, PmixLost>;

class PmixProcess {
 public:
  /// Executes `program pmix-server FD`. Throws IoError where that does not start.
  PmixProcess(const std::string& program, const PmixJob& job);
  ~PmixProcess() { end(); }
  PmixProcess(const PmixProcess&) = delete;
  PmixProcess& operator=(const PmixProcess&) = delete;

  /// What to wait for, as poll() wants it. No descriptor (-1) once the server is lost.
  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] short events() const noexcept;

  /// Reads and writes what goes without waiting, and tells what has happened. PmixLost comes once, as the last.
  [[nodiscard]] std::vector<PmixEvent> handle();

  /// All servers have come to the fence, or (`ok` false) never will; the world's ranks must then be ended.
  void answer(const PmixFenceDone& done);

  /// Hangs up, which ends the server, kills it where that takes more than a second, and reaps it. Ranks that still run
  /// end themselves when they notice.
  void end() noexcept;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }  ///< -1 once it is reaped

 private:
  void send(PmixMessage kind, std::string body);
  void flush();
  int reap() noexcept;
  [[nodiscard]] PmixEvent read(const Frame& frame) const;

  std::size_t served_;
  Socket socket_;
  FrameReader reader_;
  std::string unsent_;
  pid_t pid_ = -1;
};

}  // namespace lockstep
