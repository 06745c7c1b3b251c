// The connections of a server: bounds their number, the time in which a request arrives, and the bytes that they hold.
//
// A connection is ended by shutting down its socket, upon which its owner closes it as if the client had. Sockets are
// known by descriptor and inode, since a number is reused when a connection has been closed.
#pragma once

#include <sys/types.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

namespace lockstep {

struct ConnectionLimits {
  std::size_t max_connections = 10'000;
  double request_seconds = 30;  ///< from the connection, or from the reply before, until a request is complete
  std::size_t max_received_bytes = std::size_t{512} << 20U;  ///< of all requests that are not answered
};

enum class EndOfConnection : std::uint8_t { crowded, late, memory };
inline constexpr std::array<std::string_view, 3> end_of_connection_names{"crowded", "late", "memory"};

class ConnectionTable {
 public:
  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  class Connection {
   public:
    /// More bytes have arrived. Ends the connection if all hold too many.
    void receive(std::size_t bytes);

   private:
    friend class ConnectionTable;
    ConnectionTable* table_ = nullptr;
    int descriptor_ = -1;
    ino_t socket_ = 0;
    double waits_since_ = 0;  ///< for its next request
    std::size_t bytes_ = 0;   ///< received since its last reply
    bool is_answered_ = true;
    bool is_open_ = false;
  };

  /// A new connection, which lives as long as its socket is open. If there are too many, ends the one that has waited
  /// longest for its request, or the new one if each has a request.
  Connection& add(int descriptor, double now);

  /// A request is complete: its connection waits for the reply, however long that takes.
  void begin_reply(int descriptor);
  void end_reply(int descriptor, double now);

  /// The connection is about to be closed.
  void remove(int descriptor);

  /// Ends what is late, and forgets what has been closed. Call it about once a second.
  void sweep(double now);

  [[nodiscard]] std::size_t size() const noexcept { return open_; }
  [[nodiscard]] std::size_t received_bytes() const noexcept { return received_bytes_; }
  [[nodiscard]] std::uint64_t ended(EndOfConnection why) const noexcept {
    return ended_[static_cast<std::size_t>(why)];
  }

 private:
  [[nodiscard]] Connection* find(int descriptor);
  void end(Connection& connection, EndOfConnection why);
  void make_room();
  void forget(Connection& connection) noexcept;

  ConnectionLimits limits_;
  std::map<int, Connection> connections_;  ///< by descriptor; its values do not move
  std::size_t open_ = 0;
  std::size_t received_bytes_ = 0;
  std::array<std::uint64_t, end_of_connection_names.size()> ended_{};
};

}  // namespace lockstep
