// See rendezvous_client.hpp.
#include "cluster/rendezvous_client.hpp"

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

#include "cluster/message.hpp"
#include "cluster/resolve.hpp"
#include "core/clock.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr double name_timeout = 5;
constexpr double connect_timeout = 3;
constexpr double first_pause = 0.05;
constexpr int usage = static_cast<int>(ExitCode::usage);
constexpr int temporary = static_cast<int>(ExitCode::temporary);

bool is_number(const std::string& host) { return host.find_first_not_of("0123456789.") == std::string::npos; }

/// For an errand, and back.
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
  if (text.empty()) return found;  // no answer
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
    case ECONNREFUSED: return "it refuses the connection: no launcher runs there yet";
    case ETIMEDOUT: return "it does not answer";
    default: return std::generic_category().message(error);
  }
}

}  // namespace

RendezvousClient::RendezvousClient(Address chief, const Pass& pass, Introduction self, const Supervision& limits,
                                   Member& member)
    : chief_(std::move(chief)), pass_(pass), self_(std::move(self)), limits_(limits), member_(member) {}

void RendezvousClient::collect(std::vector<pollfd>& polled) {
  polled_from_ = polled.size();
  pollfd entry{-1, POLLIN, 0};
  if (connection_) {
    entry = {connection_->socket().descriptor(), connection_->events(), 0};
  } else if (state_ == State::connecting) {
    entry = {connecting_.descriptor(), POLLOUT, 0};
  } else if (state_ == State::resolving) {
    entry.fd = errand_.descriptor();
  }
  polled.push_back(entry);
}

void RendezvousClient::handle(std::span<const pollfd> polled) {
  const bool has_news = polled[polled_from_].revents != 0;
  if (member_.take_hang_up() && state_ == State::joined) {
    connection_.reset();
    pause();
  }
  switch (state_) {
    case State::pausing:
      if (deadline_.passed()) look_up();
      break;
    case State::resolving: take_endpoints(); break;
    case State::connecting:
      if (has_news) {
        introduce();
      } else if (deadline_.passed()) {
        problem_ = describe(ETIMEDOUT);
        connect_next();
      }
      break;
    case State::introducing:
      if (has_news) {
        take_answers();
      } else if (deadline_.passed()) {
        give_up("it answers, but not as a chief does");
      }
      break;
    case State::joined:
      if (has_news) take_answers();
      break;
  }
}

void RendezvousClient::look_up() {
  problem_.clear();
  endpoints_.clear();
  if (is_number(chief_.host)) {  // needs no name service, and no process
    endpoints_ = resolve(chief_, Deadline::after(0)).endpoints;
    connect_next();
    return;
  }
  state_ = State::resolving;
  errand_ = Errand([this]() { return write_resolution(resolve(chief_, Deadline::after(name_timeout))); },
                   Deadline::after(name_timeout + 1));
}

void RendezvousClient::take_endpoints() {
  const std::optional<std::string> answer = errand_.take();
  if (!answer) return;
  errand_ = Errand();
  Resolution found = read_resolution(*answer);
  if (found.state != NameState::found) {
    give_up(found.state == NameState::unknown ? "its name does not resolve" : "the name service does not answer");
    return;
  }
  endpoints_ = std::move(found.endpoints);
  std::reverse(endpoints_.begin(), endpoints_.end());
  connect_next();
}

void RendezvousClient::connect_next() {
  while (!endpoints_.empty()) {
    Connecting attempt = begin_connect(endpoints_.back());
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
  give_up(problem_.empty() ? "it has no address" : problem_);
}

void RendezvousClient::introduce() {
  if (const int error = finish_connect(connecting_); error != 0) {
    problem_ = describe(error);
    connect_next();
    return;
  }
  self_.address = local_address_of(connecting_);
  connection_.emplace(std::exchange(connecting_, Socket()), longest_from_coordinator);
  visitor_.emplace(pass_, self_);
  connection_->send(share(visitor_->hello()));
  state_ = State::introducing;
  // The chief may be busy with others; they all have that long to introduce themselves.
  deadline_ = Deadline::after(2 * limits_.stranger);
}

void RendezvousClient::take_answers() {
  connection_->flush();
  try {
    for (const Frame& frame : connection_->receive()) {
      if (state_ == State::joined) {
        member_.receive(to_message(frame), monotonic_seconds());
        continue;
      }
      const Visitor::Answer answer = visitor_->receive(frame);
      if (answer.frame) connection_->send(share(*answer.frame));
      if (answer.is_welcome) {
        state_ = State::joined;
        pause_ = first_pause;
        turned_away_since_.reset();
        member_.connected(monotonic_seconds());
      } else if (answer.refused) {
        const double now = monotonic_seconds();
        if (!turned_away_since_) turned_away_since_ = now;
        // A predecessor of ours that died unnoticed holds our place for as long as its silence is no loss.
        const bool is_final = answer.refused->code != static_cast<std::uint64_t>(temporary) ||
                              now - *turned_away_since_ > 2 * limits_.silence + 2;
        if (is_final) member_.refused(usage, answer.refused->reason);
        give_up(answer.refused->reason);
        return;
      }
    }
  } catch (const DataError& error) {
    give_up(error.what());
    return;
  }
  if (!connection_->is_open()) give_up(connection_->problem());
}

void RendezvousClient::give_up(const std::string& why) {
  if (state_ == State::joined) {
    member_.disconnected(why, monotonic_seconds());
  } else {
    member_.unreachable(why);
  }
  pause();
}

void RendezvousClient::pause() {
  connection_.reset();
  visitor_.reset();
  connecting_.close();
  state_ = State::pausing;
  deadline_ = Deadline::after(pause_);
  pause_ = std::min(2 * pause_, limits_.connect_retry);
}

void RendezvousClient::pump() {
  for (const Message& message : member_.take_messages()) {
    if (connection_ && state_ == State::joined) connection_->send(share(to_frame(message)));
  }
}

}  // namespace lockstep
