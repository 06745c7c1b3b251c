// A non-blocking connection that sends and receives frames, for event loops around one poll(). Incomplete frames and
// unsent bytes are buffered within limits.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/net/frame.hpp"
#include "cluster/net/socket.hpp"

namespace lockstep {

/// An encoded frame. Recipients of a broadcast share one copy.
using SharedBytes = std::shared_ptr<const std::string>;

[[nodiscard]] SharedBytes encode_shared(const Frame& frame);

class Connection {
 public:
  /// A message longer than `max_message_bytes` breaks the connection.
  Connection(Socket socket, std::size_t max_message_bytes) : socket_(std::move(socket)), reader_(max_message_bytes) {}

  void set_max_message_bytes(std::size_t max_message_bytes) noexcept {
    reader_.set_max_message_bytes(max_message_bytes);
  }

  [[nodiscard]] const Socket& socket() const noexcept { return socket_; }
  [[nodiscard]] bool is_open() const noexcept { return problem_.empty(); }
  /// Why the connection is not open; empty while it is.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  /// The events that poll() should wait for.
  [[nodiscard]] short events() const noexcept;

  /// Sends as much as possible without blocking and queues the rest. More than 512 MiB in the queue breaks the
  /// connection, because the peer does not read. The `borrowed` bytes follow: they must not change until they are
  /// sent, and count as nothing in the queue.
  void send(SharedBytes bytes, std::vector<std::span<const std::byte>> borrowed = {});
  void flush();
  [[nodiscard]] bool is_flushed() const noexcept { return queue_.empty(); }
  /// Not counting borrowed bytes.
  [[nodiscard]] std::size_t unsent_bytes() const noexcept { return unsent_; }

  /// Returns the complete frames that have arrived, including those that arrived before the connection broke. Reads at
  /// most 64 KiB per call, so that one peer cannot starve the others.
  [[nodiscard]] std::vector<Frame> receive();

  /// receive() in two steps: read() once, then next() until it returns no frame. Of a body that the placer has placed,
  /// read() reads up to 4 MiB.
  void read();
  [[nodiscard]] std::optional<Frame> next(const Placer& placer = {});

  /// From now on the connection uses no memory of others: it copies what it has not sent yet, and buffers a body that
  /// is being placed.
  void detach();

  /// Shuts down the sending direction; the peer reads end of file.
  void end_sending() noexcept;

  /// True if the first bytes were those of a Lockstep frame, so that the peer can parse a refusal.
  [[nodiscard]] bool has_valid_magic() const noexcept { return has_valid_magic_; }

 private:
  struct Outgoing {
    SharedBytes bytes;
    std::vector<std::span<const std::byte>> borrowed;
  };

  void fail(std::string problem);

  Socket socket_;
  FrameReader reader_;
  std::deque<Outgoing> queue_;
  std::size_t sent_of_first_ = 0;
  std::size_t unsent_ = 0;  ///< bytes of its own in the queue
  std::string end_;         ///< why nothing more arrives; empty while more may
  std::string problem_;
  std::string first_bytes_;  ///< compared with the magic
  bool has_valid_magic_ = false;
};

}  // namespace lockstep
