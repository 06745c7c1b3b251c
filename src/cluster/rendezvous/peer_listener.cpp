// See peer_listener.hpp.
#include "cluster/rendezvous/peer_listener.hpp"

#include "cluster/net/interfaces.hpp"
#include "cluster/rendezvous/message.hpp"
#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t default_max_unauthenticated_peers = 256;
constexpr double min_stay = 0.5;            // seconds before a peer may be dropped for a newer one
constexpr double time_to_read_refusal = 1;  // seconds
constexpr double between_lines = 10;        // seconds
constexpr std::size_t max_reported = 1000;
constexpr int temporary = static_cast<int>(ExitCode::temporary);
constexpr int usage = static_cast<int>(ExitCode::usage);

std::size_t compute_max_unauthenticated_peers(std::size_t members) {
  constexpr std::size_t reserved = 192;  // the status port's clients, log files, sockets of trainers, pipes
  const std::size_t max_descriptors = raise_descriptor_limit();
  if (max_descriptors < members + reserved + 8) {
    throw UsageError(fmt::format("the limit of {} open files is too low for {} workers; raise it (ulimit -n)",
                                 max_descriptors, members));
  }
  return std::min(default_max_unauthenticated_peers, max_descriptors - members - reserved);
}

}  // namespace

PeerListener::PeerListener(Socket listener, const Credentials& credentials, std::size_t members,
                           double handshake_timeout, Objection objection, Join join)
    : credentials_(credentials),
      handshake_timeout_(handshake_timeout),
      objection_(std::move(objection)),
      join_(std::move(join)),
      listener_(std::move(listener)),
      max_unauthenticated_peers_(compute_max_unauthenticated_peers(members)) {}

void PeerListener::collect(std::vector<pollfd>& polled) {
  polled_from_ = polled.size();
  // While there is no room, new connections stay in the kernel's backlog.
  const double now = monotonic_seconds();
  const bool has_room = unauthenticated_peers_.size() < max_unauthenticated_peers_ ||
                        now - unauthenticated_peers_.front().since >= min_stay;
  polled.push_back({has_room && now >= no_accept_until_ ? listener_.descriptor() : -1, POLLIN, 0});
  for (const UnauthenticatedPeer& peer : unauthenticated_peers_) {
    polled.push_back({peer.connection.socket().descriptor(), peer.connection.events(), 0});
  }
  polled_peers_ = unauthenticated_peers_.size();
}

void PeerListener::handle(std::span<const pollfd> polled) {
  std::span<const pollfd> entries = polled.subspan(polled_from_, 1 + polled_peers_);
  const bool has_pending_connection = entries[0].revents != 0;
  entries = entries.subspan(1);
  for (auto peer = unauthenticated_peers_.begin(); peer != unauthenticated_peers_.end();) {
    const bool has_event = entries[0].revents != 0;
    entries = entries.subspan(1);
    bool stays = true;
    if (has_event) {
      stays = serve(*peer);
    } else if (peer->deadline.passed()) {
      if (!peer->was_refused) drop(*peer, "it did not authenticate in time");
      stays = false;
    }
    peer = stays ? std::next(peer) : unauthenticated_peers_.erase(peer);
  }
  if (has_pending_connection) accept_some();
  if (dropped_peers_ > 0 && monotonic_seconds() >= next_line_) {
    next_line_ = monotonic_seconds() + between_lines;
    log_lines_.push_back(fmt::format("dropped {} unauthenticated {} at the rendezvous port, most recently {}",
                                     dropped_peers_, dropped_peers_ == 1 ? "peer" : "peers", last_dropped_peer_));
    dropped_peers_ = 0;
  }
}

void PeerListener::accept_some() {
  for (std::size_t accepted = 0; accepted < default_max_unauthenticated_peers; ++accepted) {
    if (unauthenticated_peers_.size() >= max_unauthenticated_peers_) make_room();
    if (unauthenticated_peers_.size() >= max_unauthenticated_peers_) return;
    std::optional<Accepted> peer;
    try {
      peer = accept_one(listener_);
    } catch (const InternalError& error) {  // out of descriptors or memory: members stay, new peers wait
      no_accept_until_ = monotonic_seconds() + 1;
      if (reported_.insert(error.what()).second) log_lines_.emplace_back(error.what());
      return;
    }
    if (!peer) return;
    unauthenticated_peers_.push_back({Connection(std::move(peer->socket), max_unauthenticated_message_bytes),
                                      ServerHandshake(credentials_), peer->peer.to_string(), monotonic_seconds(),
                                      Deadline::after(handshake_timeout_), false});
    // Most peers have sent data by now, which saves a poll().
    if (!serve(unauthenticated_peers_.back())) unauthenticated_peers_.pop_back();
  }
}

void PeerListener::make_room() {
  const double now = monotonic_seconds();
  if (now - unauthenticated_peers_.front().since < min_stay) return;
  if (!unauthenticated_peers_.front().was_refused)
    drop(unauthenticated_peers_.front(), "it did not authenticate, and others waited");
  unauthenticated_peers_.pop_front();
}

bool PeerListener::serve(UnauthenticatedPeer& peer) {
  peer.connection.flush();
  const std::vector<Frame> frames = peer.connection.receive();
  if (peer.was_refused) return peer.connection.is_open();
  try {
    for (const Frame& frame : frames) {
      const ServerHandshake::Answer answer = peer.handshake.receive(frame);
      if (answer.peer) return accept_member(peer, *answer.peer);
      if (!answer.refusal.empty()) {
        refuse(peer, answer.frame.value(), answer.refusal);
        return peer.connection.is_open();
      }
      if (answer.frame) peer.connection.send(encode_shared(*answer.frame));
    }
  } catch (const DataError& error) {
    drop(peer, error.what());
    return false;
  }
  if (peer.connection.is_open()) return true;
  if (peer.connection.has_valid_magic() && peer.connection.problem().find("version") != std::string::npos) {
    // Another version of Lockstep. The frame bypasses the connection, which is broken and sends nothing.
    const std::string why = "incompatible peer: " + peer.connection.problem();
    const std::string refusal = encode(ServerHandshake::refuse(usage, why));
    (void)send_some(peer.connection.socket(), std::as_bytes(std::span(refusal)));
    peer.connection.end_sending();
    if (reported_.size() < max_reported && reported_.insert(why).second)
      log_lines_.push_back(fmt::format("refused {}: {}", peer.from, why));
  } else {
    drop(peer, peer.connection.problem());
  }
  return false;
}

bool PeerListener::accept_member(UnauthenticatedPeer& peer, PeerInfo who) {
  // Where the network translates addresses, the peer does not know the address that others see.
  if (std::string seen = peer_address_of(peer.connection.socket()); is_ip_address(seen))
    who.addresses.push_back(std::move(seen));
  if (const std::string objection = objection_(who); !objection.empty()) {
    refuse(peer, ServerHandshake::refuse(temporary, objection), objection);
    return peer.connection.is_open();
  }
  peer.connection.send(encode_shared(peer.handshake.welcome()));
  join_(who, std::move(peer.connection));
  return false;
}

void PeerListener::refuse(UnauthenticatedPeer& peer, const Frame& answer, const std::string& why) {
  peer.connection.send(encode_shared(answer));
  peer.connection.end_sending();
  peer.was_refused = true;
  peer.deadline = Deadline::after(time_to_read_refusal);
  if (reported_.size() < max_reported && reported_.insert(why).second)
    log_lines_.push_back(fmt::format("refused {}: {}", peer.from, why));
}

void PeerListener::drop(const UnauthenticatedPeer& peer, const std::string& why) {
  ++dropped_peers_;
  last_dropped_peer_ = fmt::format("{} ({})", peer.from, why);
}

std::vector<std::string> PeerListener::take_log_lines() { return std::exchange(log_lines_, {}); }

}  // namespace lockstep
