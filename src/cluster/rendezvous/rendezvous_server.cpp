// See rendezvous_server.hpp.
#include "cluster/rendezvous/rendezvous_server.hpp"

#include "cluster/net/probe.hpp"
#include "cluster/rendezvous/message.hpp"
#include "core/clock.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr double probe_timeout = 3;  // seconds
constexpr double first_probe = 2;    // seconds after the start

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
    : addresses_(std::move(addresses)),
      timeouts_(timeouts),
      coordinator_(coordinator),
      listener_(
          std::move(listener), credentials, addresses_.size(), timeouts.handshake_timeout,
          [this](const PeerInfo& who) { return coordinator_.join(who, monotonic_seconds()); },
          [this](const PeerInfo& who, Connection connection) { join(who, std::move(connection)); }),
      members_(addresses_.size()),
      next_probe_(monotonic_seconds() + first_probe) {}

void RendezvousServer::collect(std::vector<pollfd>& polled) {
  polled_from_ = polled.size();
  polled.push_back({probe_task_.descriptor(), POLLIN, 0});
  polled_members_.clear();
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (!members_[member]) continue;
    polled_members_.push_back(member);
    polled.push_back({members_[member]->socket().descriptor(), members_[member]->events(), 0});
  }
  listener_.collect(polled);
}

void RendezvousServer::handle(std::span<const pollfd> polled) {
  std::span<const pollfd> entries = polled.subspan(polled_from_ + 1);
  for (const std::size_t member : polled_members_) {
    const bool has_event = entries[0].revents != 0;
    entries = entries.subspan(1);
    if (has_event && members_[member]) serve(member);
  }
  listener_.handle(polled);
  probe_missing();
}

void RendezvousServer::join(const PeerInfo& who, Connection connection) {
  connection.set_max_message_bytes(max_member_message_bytes);
  if (own_address_.empty() || own_address_.starts_with("127.") || own_address_ == "::1") {
    own_address_ = local_address_of(connection.socket());
  }
  members_.at(who.member) = std::make_unique<Connection>(std::move(connection));
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
