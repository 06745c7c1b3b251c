// See rendezvous_client.hpp.
#include "cluster/rendezvous/rendezvous_client.hpp"

#include "cluster/net/interfaces.hpp"
#include "cluster/net/resolve.hpp"
#include "cluster/rendezvous/message.hpp"
#include "core/clock.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr double name_timeout = 5;
constexpr double connect_timeout = 3;
constexpr double first_reconnect_delay = 0.05;
constexpr int usage = static_cast<int>(ExitCode::usage);
constexpr int temporary = static_cast<int>(ExitCode::temporary);

bool is_number(const std::string& host) { return host.find_first_not_of("0123456789.") == std::string::npos; }

/// Serializes a resolution for the pipe of a ForkedTask.
std::string write_resolution(const Resolution& found) {
  BodyWriter writer;
  writer.number(static_cast<std::uint64_t>(found.state)).number(found.endpoints.size());
  for (const Endpoint& endpoint : found.endpoints) {
    writer.text(std::string(reinterpret_cast<const char*>(&endpoint.storage), endpoint.length));
  }
  return writer.take();
}

Resolution read_resolution(const std::string& text) {
  Resolution found;
  if (text.empty()) return found;  // the task failed
  BodyReader reader(text);
  found.state = static_cast<NameState>(reader.number());
  found.endpoints.resize(reader.count(8));
  for (Endpoint& endpoint : found.endpoints) {
    const std::string bytes = reader.text();
    endpoint.length = static_cast<socklen_t>(std::min(bytes.size(), sizeof endpoint.storage));
    std::memcpy(&endpoint.storage, bytes.data(), endpoint.length);
  }
  return found;
}

std::string describe(int error) {
  switch (error) {
    case ECONNREFUSED: return "connection refused: no launcher runs there yet";
    case ETIMEDOUT: return "it does not answer";
    default: return std::generic_category().message(error);
  }
}

}  // namespace

RendezvousClient::RendezvousClient(Address chief, const Credentials& credentials, PeerInfo self,
                                   const SupervisionTimeouts& timeouts, Member& member)
    : chief_(std::move(chief)),
      credentials_(credentials),
      self_(std::move(self)),
      timeouts_(timeouts),
      member_(member) {}

void RendezvousClient::collect(std::vector<pollfd>& polled) {
  polled_from_ = polled.size();
  pollfd entry{-1, POLLIN, 0};
  if (connection_) {
    entry = {connection_->socket().descriptor(), connection_->events(), 0};
  } else if (state_ == State::connecting) {
    entry = {connecting_.descriptor(), POLLOUT, 0};
  } else if (state_ == State::resolving) {
    entry.fd = resolve_task_.descriptor();
  }
  polled.push_back(entry);
}

void RendezvousClient::handle(std::span<const pollfd> polled) {
  const bool has_event = polled[polled_from_].revents != 0;
  if (member_.take_disconnect_request() && state_ == State::joined) {
    connection_.reset();
    schedule_reconnect();
  }
  switch (state_) {
    case State::pausing:
      if (deadline_.passed()) resolve_chief();
      break;
    case State::resolving: take_endpoints(); break;
    case State::connecting:
      if (has_event) {
        send_hello();
      } else if (deadline_.passed()) {
        problem_ = describe(ETIMEDOUT);
        connect_next();
      }
      break;
    case State::authenticating:
      if (has_event) {
        take_answers();
      } else if (deadline_.passed()) {
        connection_failed("it accepts connections, but does not answer the handshake");
      }
      break;
    case State::joined:
      if (has_event) take_answers();
      break;
  }
}

void RendezvousClient::resolve_chief() {
  problem_.clear();
  endpoints_.clear();
  if (is_number(chief_.host)) {  // an IP address needs no lookup
    endpoints_ = resolve(chief_, Deadline::after(0)).endpoints;
    connect_next();
    return;
  }
  try {
    resolve_task_ = ForkedTask([this]() { return write_resolution(resolve(chief_, Deadline::after(name_timeout))); },
                               Deadline::after(name_timeout + 1));
    state_ = State::resolving;
  } catch (const Error& error) {  // no process or pipe to be had: later there may be
    connection_failed(fmt::format("its name cannot be looked up: {}", error.what()));
  }
}

void RendezvousClient::take_endpoints() {
  const std::optional<std::string> answer = resolve_task_.take_result();
  if (!answer) return;
  resolve_task_ = ForkedTask();
  Resolution found = read_resolution(*answer);
  if (found.state != NameState::found) {
    connection_failed(found.state == NameState::unknown ? "its name does not resolve"
                                                        : "the name service does not answer");
    return;
  }
  endpoints_ = std::move(found.endpoints);
  std::reverse(endpoints_.begin(), endpoints_.end());
  connect_next();
}

void RendezvousClient::connect_next() {
  while (!endpoints_.empty()) {
    ConnectAttempt attempt = begin_connect(endpoints_.back());
    endpoints_.pop_back();
    if (attempt.error != 0 && attempt.error != EINPROGRESS) {
      problem_ = describe(attempt.error);
      continue;
    }
    connecting_ = std::move(attempt.socket);
    state_ = State::connecting;
    deadline_ = Deadline::after(connect_timeout);
    return;
  }
  connection_failed(problem_.empty() ? "it has no address" : problem_);
}

void RendezvousClient::send_hello() {
  if (const int error = finish_connect(connecting_); error != 0) {
    problem_ = describe(error);
    connect_next();
    return;
  }
  self_.address = local_address_of(connecting_);
  self_.addresses = addresses_of_host(self_.address);
  connection_.emplace(std::exchange(connecting_, Socket()), max_coordinator_message_bytes);
  handshake_.emplace(credentials_, self_);
  connection_->send(encode_shared(handshake_->hello()));
  state_ = State::authenticating;
  // The chief may be busy with other peers, and each of them may take handshake_timeout.
  deadline_ = Deadline::after(2 * timeouts_.handshake_timeout);
}

void RendezvousClient::take_answers() {
  connection_->flush();
  try {
    for (const Frame& frame : connection_->receive()) {
      if (state_ == State::joined) {
        member_.receive(to_message(frame), monotonic_seconds());
        continue;
      }
      const ClientHandshake::Answer answer = handshake_->receive(frame);
      if (answer.frame) connection_->send(encode_shared(*answer.frame));
      if (answer.is_welcome) {
        state_ = State::joined;
        reconnect_delay_ = first_reconnect_delay;
        member_.connected(monotonic_seconds());
      } else if (answer.refused) {
        // A refusal proves nothing: where the job has a token, another process may have got the chief's address. A
        // temporary one ends when the chief has noticed that this process' predecessor is gone.
        const bool is_final =
            !credentials_.token.is_set() && answer.refused->code != static_cast<std::uint64_t>(temporary);
        if (is_final) member_.refused(usage, answer.refused->reason);
        connection_failed(answer.refused->reason);
        return;
      }
    }
  } catch (const DataError& error) {
    connection_failed(error.what());
    return;
  }
  if (!connection_->is_open()) connection_failed(connection_->problem());
}

void RendezvousClient::connection_failed(const std::string& why) {
  if (state_ == State::joined) {
    member_.disconnected(why, monotonic_seconds());
  } else {
    member_.unreachable(why);
  }
  schedule_reconnect();
}

void RendezvousClient::schedule_reconnect() {
  connection_.reset();
  handshake_.reset();
  connecting_.close();
  state_ = State::pausing;
  deadline_ = Deadline::after(reconnect_delay_);
  reconnect_delay_ = std::min(2 * reconnect_delay_, timeouts_.max_reconnect_delay);
}

void RendezvousClient::pump() {
  for (const Message& message : member_.take_messages()) {
    if (connection_ && state_ == State::joined) connection_->send(encode_shared(to_frame(message)));
  }
}

}  // namespace lockstep
