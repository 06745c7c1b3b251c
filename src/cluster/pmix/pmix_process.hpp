// The launcher's side of a generation's PMIx server: starts it as a separate process, exchanges messages with it
// without blocking, and ends it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cluster/net/frame.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/pmix/pmix_messages.hpp"

namespace lockstep {

/// The server is gone or failed to start; ranks cannot outlive it.
struct PmixLost {
  std::string why;
};

using PmixEvent = std::variant<PmixReady, PmixFence, PmixAbort, PmixLost>;

class PmixProcess {
 public:
  /// Executes `program pmix-server FD`. Throws IoError if that fails.
  PmixProcess(const std::string& program, const PmixJob& job);
  ~PmixProcess() { end(); }
  PmixProcess(const PmixProcess&) = delete;
  PmixProcess& operator=(const PmixProcess&) = delete;

  /// The descriptor and events for poll(); the descriptor is -1 once the server is lost.
  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] short events() const noexcept;

  /// Sends and receives without blocking, and returns the server's events. PmixLost comes at most once, as the last
  /// one.
  [[nodiscard]] std::vector<PmixEvent> handle();

  /// Completes a fence. With `ok` false it fails, and the ranks of the world must then be ended.
  void answer(const PmixFenceDone& done);

  /// Closes the socket, which ends the server; kills the server if it still runs a second later, and reaps it if
  /// it ends within another second. Ranks that still run end when they lose the server.
  void end() noexcept;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }  ///< -1 after it was reaped

 private:
  void send(PmixMessage kind, std::string body);
  void flush();
  int reap() noexcept;
  [[nodiscard]] PmixEvent read(const Frame& frame) const;

  std::size_t num_served_ranks_;
  Socket socket_;
  FrameReader reader_;
  std::string unsent_;
  pid_t pid_ = -1;
};

}  // namespace lockstep
