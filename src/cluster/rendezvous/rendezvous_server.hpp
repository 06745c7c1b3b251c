// The server side of the rendezvous: listens on the chief's port, authenticates peers, and carries messages between
// members and the coordinator.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cluster/net/address.hpp"
#include "cluster/net/connection.hpp"
#include "cluster/net/forked_task.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/rendezvous/coordinator.hpp"
#include "cluster/rendezvous/handshake.hpp"
#include "cluster/rendezvous/peer_listener.hpp"
#include "cluster/rendezvous/supervision_timeouts.hpp"

namespace lockstep {

class RendezvousServer {
 public:
  /// `addresses`: the addresses of all tasks, to probe missing members. The references must outlive this object.
  RendezvousServer(Socket listener, const Credentials& credentials, std::vector<Address> addresses,
                   const SupervisionTimeouts& timeouts, Coordinator& coordinator);

  /// Appends the descriptors that poll() should wait for.
  void collect(std::vector<pollfd>& polled);
  /// Handles the events of the entries that the last collect() appended; `polled` may hold others.
  void handle(std::span<const pollfd> polled);

  // The actions of the coordinator.
  void post(std::size_t member, const SharedBytes& bytes);
  void disconnect(std::size_t member);

  /// The local address at which a member reached this process; a loopback address only if there is no other.
  [[nodiscard]] const std::string& own_address() const noexcept { return own_address_; }

  [[nodiscard]] bool is_flushed() const;

  /// See PeerListener::take_log_lines.
  [[nodiscard]] std::vector<std::string> take_log_lines() { return listener_.take_log_lines(); }

 private:
  void join(const PeerInfo& who, Connection connection);
  void serve(std::size_t member);
  void probe_missing();

  std::vector<Address> addresses_;
  SupervisionTimeouts timeouts_;
  Coordinator& coordinator_;
  PeerListener listener_;

  std::vector<std::unique_ptr<Connection>> members_;  ///< by member; null if not connected
  std::string own_address_;

  ForkedTask probe_task_;  ///< probes missing members
  std::vector<std::size_t> probed_;
  double next_probe_ = 0;

  // The positions of entries that collect() appended.
  std::size_t polled_from_ = 0;
  std::vector<std::size_t> polled_members_;
};

}  // namespace lockstep
