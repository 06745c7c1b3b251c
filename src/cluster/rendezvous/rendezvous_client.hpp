// The client side of the rendezvous: connects to the chief, authenticates, carries messages between the Member and the
// coordinator, and reconnects when the connection breaks. Each attempt resolves the chief's name again.
#pragma once

#include <poll.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/net/address.hpp"
#include "cluster/net/connection.hpp"
#include "cluster/net/endpoint.hpp"
#include "cluster/net/forked_task.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/rendezvous/handshake.hpp"
#include "cluster/rendezvous/member.hpp"
#include "cluster/rendezvous/supervision_timeouts.hpp"
#include "core/deadline.hpp"

namespace lockstep {

class RendezvousClient {
 public:
  /// The references must outlive this object.
  RendezvousClient(Address chief, const Credentials& credentials, PeerInfo self, const SupervisionTimeouts& timeouts,
                   Member& member);

  /// Appends the descriptors that poll() should wait for.
  void collect(std::vector<pollfd>& polled);
  /// Handles the events of the entries that the last collect() appended; `polled` may hold others.
  void handle(std::span<const pollfd> polled);

  /// Sends the member's pending messages.
  void pump();

  [[nodiscard]] bool is_flushed() const { return !connection_ || connection_->is_flushed(); }

  /// The local IP address of the connection to the chief; empty before the first one.
  [[nodiscard]] const std::string& own_address() const noexcept { return self_.address; }

 private:
  enum class State { pausing, resolving, connecting, authenticating, joined };

  void resolve_chief();
  void take_endpoints();
  void connect_next();
  void send_hello();
  void take_answers();
  void connection_failed(const std::string& why);
  void schedule_reconnect();

  Address chief_;
  const Credentials& credentials_;
  PeerInfo self_;
  SupervisionTimeouts timeouts_;
  Member& member_;

  State state_ = State::pausing;
  Deadline deadline_ = Deadline::after(0);  ///< of the current state
  double reconnect_delay_ = 0.05;           ///< seconds, doubles with each attempt
  ForkedTask resolve_task_;
  std::vector<Endpoint> endpoints_;  ///< not tried yet, in reverse order
  Socket connecting_;
  std::optional<Connection> connection_;
  std::optional<ClientHandshake> handshake_;
  std::string problem_;  ///< error of the last attempt
  std::size_t polled_from_ = 0;
};

}  // namespace lockstep
