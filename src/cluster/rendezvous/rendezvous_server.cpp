// See rendezvous_server.hpp.
#include "cluster/rendezvous/rendezvous_server.hpp"

#include "cluster/net/interfaces.hpp"
#include "cluster/net/probe.hpp"
#include "cluster/rendezvous/message.hpp"
#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
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
constexpr double probe_timeout = 3;         // seconds
constexpr double first_probe = 2;           // seconds after the start
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

std::string describe(Reachability reach, const std::string& problem) {
  switch (reach) {
    case Reachability::answers: return "its port accepts connections, but it has not joined";
    case Reachability::refused: return "connection refused: no launcher runs there yet";
    case Reachability::no_answer: return "its host does not answer";
    case Reachability::unreachable: return "its host is unreachable: " + problem;
    case Reachability::unknown_name: return "its name does not resolve";
    case Reachability::no_name_service: break;
  }
  return "the name service does not answer";
}

/// Runs in a ForkedTask: describes each address, in order.
std::string probe_all(const std::vector<Address>& addresses) {
  BodyWriter writer;
  for (const Probe& probe : probe(addresses, probe_timeout)) {
    writer.text(describe(probe.reach, probe.problem));
  }
  return writer.take();
}

}  // namespace

RendezvousServer::RendezvousServer(Socket listener, const Credentials& credentials, std::vector<Address> addresses,
                                   const SupervisionTimeouts& timeouts, Coordinator& coordinator)
    : credentials_(credentials),
      addresses_(std::move(addresses)),
      timeouts_(timeouts),
      coordinator_(coordinator),
      listener_(std::move(listener)),
      max_unauthenticated_peers_(compute_max_unauthenticated_peers(addresses_.size())),
      members_(addresses_.size()),
      next_probe_(monotonic_seconds() + first_probe) {}

void RendezvousServer::collect(std::vector<pollfd>& polled) {
  polled_from_ = polled.size();
  // While there is no room, new connections stay in the kernel's backlog.
  const double now = monotonic_seconds();
  const bool has_room = unauthenticated_peers_.size() < max_unauthenticated_peers_ ||
                        now - unauthenticated_peers_.front().since >= min_stay;
  polled.push_back({has_room && now >= no_accept_until_ ? listener_.descriptor() : -1, POLLIN, 0});
  polled.push_back({probe_task_.descriptor(), POLLIN, 0});
  for (const UnauthenticatedPeer& peer : unauthenticated_peers_) {
    polled.push_back({peer.connection.socket().descriptor(), peer.connection.events(), 0});
  }
  polled_members_.clear();
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (!members_[member]) continue;
    polled_members_.push_back(member);
    polled.push_back({members_[member]->socket().descriptor(), members_[member]->events(), 0});
  }
}

void RendezvousServer::handle(std::span<const pollfd> polled) {
  std::span<const pollfd> entries = polled.subspan(polled_from_);
  const bool has_pending_connection = entries[0].revents != 0;
  entries = entries.subspan(2);
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
  for (const std::size_t member : polled_members_) {
    const bool has_event = entries[0].revents != 0;
    entries = entries.subspan(1);
    if (has_event && members_[member]) serve(member);
  }
  if (has_pending_connection) accept_some();
  probe_missing();
  if (dropped_peers_ > 0 && monotonic_seconds() >= next_line_) {
    next_line_ = monotonic_seconds() + between_lines;
    log_lines_.push_back(fmt::format("dropped {} unauthenticated {} at the rendezvous port, most recently {}",
                                     dropped_peers_, dropped_peers_ == 1 ? "peer" : "peers", last_dropped_peer_));
    dropped_peers_ = 0;
  }
}

void RendezvousServer::accept_some() {
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
                                      Deadline::after(timeouts_.handshake_timeout), false});
    // Most peers have sent data by now, which saves a poll().
    if (!serve(unauthenticated_peers_.back())) unauthenticated_peers_.pop_back();
  }
}

void RendezvousServer::make_room() {
  const double now = monotonic_seconds();
  if (now - unauthenticated_peers_.front().since < min_stay) return;
  if (!unauthenticated_peers_.front().was_refused)
    drop(unauthenticated_peers_.front(), "it did not authenticate, and others waited");
  unauthenticated_peers_.pop_front();
}

bool RendezvousServer::serve(UnauthenticatedPeer& peer) {
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

bool RendezvousServer::accept_member(UnauthenticatedPeer& peer, PeerInfo who) {
  // Where the network translates addresses, the peer does not know the address that others see.
  if (std::string seen = peer_address_of(peer.connection.socket()); is_ip_address(seen))
    who.addresses.push_back(std::move(seen));
  const std::string objection = coordinator_.join(who, monotonic_seconds());
  if (!objection.empty()) {
    refuse(peer, ServerHandshake::refuse(temporary, objection), objection);
    return peer.connection.is_open();
  }
  peer.connection.set_max_message_bytes(max_member_message_bytes);
  peer.connection.send(encode_shared(peer.handshake.welcome()));
  if (own_address_.empty() || own_address_.starts_with("127.") || own_address_ == "::1") {
    own_address_ = local_address_of(peer.connection.socket());
  }
  members_.at(who.member) = std::make_unique<Connection>(std::move(peer.connection));
  return false;
}

void RendezvousServer::refuse(UnauthenticatedPeer& peer, const Frame& answer, const std::string& why) {
  peer.connection.send(encode_shared(answer));
  peer.connection.end_sending();
  peer.was_refused = true;
  peer.deadline = Deadline::after(time_to_read_refusal);
  if (reported_.size() < max_reported && reported_.insert(why).second)
    log_lines_.push_back(fmt::format("refused {}: {}", peer.from, why));
}

void RendezvousServer::drop(const UnauthenticatedPeer& peer, const std::string& why) {
  ++dropped_peers_;
  last_dropped_peer_ = fmt::format("{} ({})", peer.from, why);
}

void RendezvousServer::serve(std::size_t member) {
  Connection& connection = *members_[member];
  connection.flush();
  try {
    for (const Frame& frame : connection.receive()) {
      coordinator_.receive(member, to_message(frame), monotonic_seconds());
    }
  } catch (const DataError& error) {
    members_[member].reset();
    coordinator_.member_lost(member, fmt::format("it sent an invalid message: {}", error.what()), monotonic_seconds());
    return;
  }
  if (connection.is_open()) return;
  const std::string why = connection.problem();
  members_[member].reset();
  coordinator_.member_lost(member, why, monotonic_seconds());
}

void RendezvousServer::post(std::size_t member, const SharedBytes& bytes) {
  if (members_.at(member)) members_[member]->send(bytes);
}

void RendezvousServer::disconnect(std::size_t member) { members_.at(member).reset(); }

bool RendezvousServer::is_flushed() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& it) { return !it || it->is_flushed(); });
}

std::vector<std::string> RendezvousServer::take_log_lines() { return std::exchange(log_lines_, {}); }

void RendezvousServer::probe_missing() {
  if (const std::optional<std::string> answer = probe_task_.take_result()) {
    probe_task_ = ForkedTask();
    if (answer->empty()) return;
    BodyReader reader(*answer);
    for (const std::size_t member : probed_) coordinator_.set_absence_reason(member, reader.text());
  }
  const double now = monotonic_seconds();
  if (probe_task_.is_running() || now < next_probe_) return;
  // The result should arrive before the next log line about missing members.
  next_probe_ = now + std::max(timeouts_.report_interval - probe_timeout - first_probe, 0.5);
  probed_ = coordinator_.missing_members();
  if (probed_.empty()) return;
  std::vector<Address> missing;
  for (const std::size_t member : probed_) missing.push_back(addresses_[member]);
  try {
    probe_task_ = ForkedTask([&missing]() { return probe_all(missing); }, Deadline::after(3 * probe_timeout));
  } catch (const Error& error) {  // no process or pipe to be had: the next probe may have one
    for (const std::size_t member : probed_) coordinator_.set_absence_reason(member, error.what());
  }
}

}  // namespace lockstep
