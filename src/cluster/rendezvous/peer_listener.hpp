// A listening port that authenticates its peers. Unauthenticated peers (port scanners, probes, slow or silent
// connections) are bounded in number, time and buffer size; when there are too many, the oldest is dropped.
#pragma once

#include <poll.h>

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cluster/net/connection.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/rendezvous/handshake.hpp"
#include "core/deadline.hpp"

namespace lockstep {

class PeerListener {
 public:
  /// Asks whether an authenticated peer may join: empty, or why it may not now.
  using Objection = std::function<std::string(const PeerInfo& peer)>;
  /// Takes the connection of a peer that has joined. It still refuses long messages.
  using Join = std::function<void(const PeerInfo& peer, Connection connection)>;

  /// `members`: how many connections the owner holds at most, besides. `credentials` must outlive this object.
  /// `handshake_timeout`: seconds for a new connection to authenticate.
  PeerListener(Socket listener, const Credentials& credentials, std::size_t members, double handshake_timeout,
               Objection objection, Join join);

  /// Appends the descriptors that poll() should wait for.
  void collect(std::vector<pollfd>& polled);
  /// Handles the events of the entries that the last collect() appended; `polled` may hold others.
  void handle(std::span<const pollfd> polled);

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

  const Credentials& credentials_;
  double handshake_timeout_;
  Objection objection_;
  Join join_;
  Socket listener_;
  std::size_t max_unauthenticated_peers_;
  std::list<UnauthenticatedPeer> unauthenticated_peers_;  ///< oldest first
  double no_accept_until_ = 0;                            ///< after accept() ran out of descriptors
  std::size_t polled_from_ = 0;                           ///< the position of the entries that collect() appended
  std::size_t polled_peers_ = 0;                          ///< how many of them are peers

  std::vector<std::string> log_lines_;
  std::set<std::string> reported_;  ///< refusals that were logged, to log each once
  std::size_t dropped_peers_ = 0;
  double next_line_ = 0;
  std::string last_dropped_peer_;
};

}  // namespace lockstep
