// The server side of the rendezvous: listens on the chief's port, authenticates peers, and carries messages between
// members and the coordinator. Unauthenticated peers (port scanners, probes, slow or silent connections) are bounded in
// number, time and buffer size; when there are too many, the oldest is dropped.
#pragma once

#include <poll.h>

#include <cstddef>
#include <list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cluster/net/address.hpp"
#include "cluster/net/connection.hpp"
#include "cluster/net/forked_task.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/rendezvous/coordinator.hpp"
#include "cluster/rendezvous/handshake.hpp"
#include "cluster/rendezvous/supervision_timeouts.hpp"
#include "core/deadline.hpp"

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

  /// Returns log lines about refused and dropped peers. Drops share one line per ten seconds, so that a port scanner
  /// does not fill the log.
  [[nodiscard]] std::vector<std::string> take_log_lines();

 private:
  struct UnauthenticatedPeer {
    Connection connection;
    ServerHandshake handshake;
    std::string from;
    double since = 0;
    Deadline deadline;
    bool was_refused = false;
  };

  void accept_some();
  void make_room();
  /// Returns false if the peer is to be removed: closed, refused, or now a member.
  [[nodiscard]] bool serve(UnauthenticatedPeer& peer);
  [[nodiscard]] bool accept_member(UnauthenticatedPeer& peer, PeerInfo who);
  void refuse(UnauthenticatedPeer& peer, const Frame& answer, const std::string& why);
  void drop(const UnauthenticatedPeer& peer, const std::string& why);
  void serve(std::size_t member);
  void probe_missing();

  const Credentials& credentials_;
  std::vector<Address> addresses_;
  SupervisionTimeouts timeouts_;
  Coordinator& coordinator_;
  Socket listener_;
  std::size_t max_unauthenticated_peers_;

  std::vector<std::unique_ptr<Connection>> members_;      ///< by member; null if not connected
  std::list<UnauthenticatedPeer> unauthenticated_peers_;  ///< oldest first
  std::string own_address_;
  double no_accept_until_ = 0;  ///< after accept() ran out of descriptors

  ForkedTask probe_task_;  ///< probes missing members
  std::vector<std::size_t> probed_;
  double next_probe_ = 0;

  // The positions of entries that collect() appended.
  std::size_t polled_from_ = 0;
  std::vector<std::size_t> polled_members_;

  std::vector<std::string> log_lines_;
  std::set<std::string> reported_;  ///< refusals that were logged, to log each once
  std::size_t dropped_peers_ = 0;
  double next_line_ = 0;
  std::string last_dropped_peer_;
};

}  // namespace lockstep
