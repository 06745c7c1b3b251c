// A connection on which frames come and go, for programs that wait in one poll(): takes what is there, sends what goes,
// and keeps the rest, of either within bounds.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/frame.hpp"
#include "cluster/socket.hpp"

namespace lockstep {

/// A frame's bytes: what many are sent is kept once.
using SharedBytes = std::shared_ptr<const std::string>;

[[nodiscard]] SharedBytes share(const Frame& frame);

class Connection {
 public:
  /// Messages longer than `longest` break it.
  Connection(Socket socket, std::size_t longest) : socket_(std::move(socket)), reader_(longest) {}

  void set_longest(std::size_t longest) noexcept { reader_.set_longest(longest); }

  [[nodiscard]] const Socket& socket() const noexcept { return socket_; }
  [[nodiscard]] bool is_open() const noexcept { return problem_.empty(); }
  /// Why it is not open.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  /// What poll() should wait for.
  [[nodiscard]] short events() const noexcept;

  /// Sends at once what goes. Too much unsent breaks the connection: the peer does not read.
  void send(SharedBytes bytes);
  void flush();
  [[nodiscard]] bool is_flushed() const noexcept { return queue_.empty(); }

  /// Whole frames of what has arrived; at most a few times 64 KiB a call, so that no peer keeps out the others. Those
  /// that came before the connection broke are returned as well.
  [[nodiscard]] std::vector<Frame> receive();

  /// No more is sent; the peer sees the end.
  void end_sending() noexcept;

  /// True where the peer began as Lockstep's peers do, so that it may understand a refusal.
  [[nodiscard]] bool began_well() const noexcept { return began_well_; }

 private:
  void fail(std::string problem);

  Socket socket_;
  FrameReader reader_;
  std::deque<SharedBytes> queue_;
  std::size_t sent_of_first_ = 0;
  std::size_t unsent_ = 0;
  std::string problem_;
  std::string beginning_;  ///< the first bytes that came
  bool began_well_ = false;
};

}  // namespace lockstep
