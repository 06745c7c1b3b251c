// See task_links.hpp. One file, because connecting, listening, reading and losing share the table of connections.
#include "cluster/parameter_server/task_links.hpp"

#include "cluster/net/format_seconds.hpp"
#include "cluster/net/host_id.hpp"
#include "cluster/net/resolve.hpp"
#include "cluster/net/socket.hpp"
#include "cluster/rendezvous/message.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/printable.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

constexpr std::uint16_t ready_kind = 40;
constexpr std::uint16_t goodbye_kind = 41;
constexpr std::size_t max_frame_bytes = std::size_t{1} << 30U;
constexpr std::size_t max_unsent_bytes = std::size_t{64} << 20U;
constexpr double name_timeout = 5;
constexpr double connect_timeout = 3;
constexpr double first_retry_delay = 0.05;
constexpr double max_retry_delay = 1;
constexpr int poll_ms = 50;
constexpr double goodbye_s = 1;
constexpr int usage = static_cast<int>(ExitCode::usage);

/// A host that has lost its power or its network closes no connection: the kernel notices it within half a minute.
void watch_connection(const Socket& socket) {
  const auto set = [&](int level, int name, int value) {
    (void)setsockopt(socket.descriptor(), level, name, &value, sizeof value);  // not fatal: timeouts remain
  };
  constexpr int idle_s = 10;
  constexpr int probes = 4;
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, idle_s / 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, probes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 3 * idle_s * 1000);
}

std::string describe(int error) {
  switch (error) {
    case ECONNREFUSED: return "connection refused: no server runs there yet";
    case ETIMEDOUT: return "it does not answer";
    default: return std::generic_category().message(error);
  }
}

PeerInfo own_info(std::size_t member) {
  PeerInfo self;
  self.member = member;
  self.incarnation = random_number();
  self.host_name = host_name();
  return self;
}

}  // namespace

TaskLinks::TaskLinks(const ClusterSpec& cluster, const TaskLinkOptions& options)
    : cluster_(cluster), options_(options), links_(cluster.tasks.size() + cluster.servers.size()) {
  own_ = cluster.server ? task_of_server(*cluster.server) : cluster.rank.value();
  for (std::size_t server = 0; server < servers(); ++server) {
    Credentials its;
    its.job = options_.job;
    its.cluster = cluster_.digest().value();
    its.token = options_.token;
    its.listener = cluster_.servers[server].name();
    its.peer = "the trainer";
    its.tasks.push_back(its.listener);  // the listening side, then all tasks
    for (std::size_t other = 0; other < links_.size(); ++other) its.tasks.push_back(task(other).name());
    credentials_.push_back(std::move(its));
  }
  connect_all();
}

TaskLinks::~TaskLinks() = default;

const Task& TaskLinks::task(std::size_t index) const {
  return index < workers() ? cluster_.tasks[index] : cluster_.servers.at(index - workers());
}

std::string TaskLinks::name_of(std::size_t index) const {
  const Task& it = task(index);
  return fmt::format("{} ({})", it.name(), it.address.to_string());
}

bool TaskLinks::connects_to(std::size_t other) const noexcept {
  if (other < workers() || other == own_) return false;
  return !is_server() || (own_ > task_of_server(0) && other == task_of_server(0));
}

bool TaskLinks::accepts(std::size_t other) const noexcept {
  if (!is_server() || other == own_) return false;
  return other < workers() || own_ == task_of_server(0);
}

void TaskLinks::connect_all() {
  if (is_server()) listen();
  const Deadline deadline = Deadline::after(options_.rendezvous_timeout);
  Deadline report_at = Deadline::after(options_.report_interval);
  while (true) {
    for (std::size_t other = 0; other < links_.size(); ++other) {
      if (connects_to(other) && !links_[other].connection && links_[other].retry_at.passed()) connect(other);
    }
    if (!is_ready_ && are_all_connected()) {
      is_ready_ = true;
      for (std::size_t other = 0; other < links_.size(); ++other) {
        if (accepts(other)) links_[other].connection->send(encode_shared({ready_kind, ""}));
      }
    }
    const bool are_others_ready = std::ranges::all_of(
        links_, [&, i = std::size_t{0}](const Link& link) mutable { return !connects_to(i++) || link.is_ready; });
    if (is_ready_ && are_others_ready && are_all_connected()) break;
    if (deadline.passed()) {
      throw TasksNeverCameError(
          fmt::format("timed out after {} (--rendezvous-timeout) waiting for {}; start it with --strategy "
                      "parameter-server, or check its address",
                      format_seconds(options_.rendezvous_timeout), describe_missing()));
    }
    if (report_at.passed()) {
      report_at = Deadline::after(options_.report_interval);
      log_warning("waiting for " + describe_missing());
    }
    if (options_.while_waiting) options_.while_waiting();
    poll(poll_ms, {});
  }
  has_begun_ = true;
}

bool TaskLinks::are_all_connected() const {
  for (std::size_t other = 0; other < links_.size(); ++other) {
    if ((connects_to(other) || accepts(other)) && !links_[other].connection) return false;
  }
  return true;
}

std::string TaskLinks::describe_missing() const {
  std::string missing;
  for (std::size_t other = 0; other < links_.size(); ++other) {
    const Link& link = links_[other];
    if (!connects_to(other) && !accepts(other)) continue;
    if (link.connection && (accepts(other) || link.is_ready)) continue;
    missing += (missing.empty() ? "" : ", ") + name_of(other);
    if (link.connection) {
      missing += ": it waits for others";
    } else if (connects_to(other) && !link.problem.empty()) {
      missing += ": " + link.problem;
    } else if (accepts(other)) {
      missing += ": it has not connected";
    }
  }
  return missing;
}

void TaskLinks::listen() {
  const auto member = [](const PeerInfo& who) { return static_cast<std::size_t>(who.member) - 1; };
  const Credentials& own = credentials_[own_ - workers()];
  const std::uint16_t port = task(own_).address.port;
  if (!options_.token.is_set()) {
    log_warning(
        fmt::format("no job token is set: anyone who reaches port {} can join this job; set LOCKSTEP_JOB_TOKEN to the "
                    "same secret in all tasks",
                    port));
  }
  listener_ = std::make_unique<PeerListener>(
      listen_on(port), own, links_.size(), options_.handshake_timeout,
      [this, member](const PeerInfo& who) {
        const std::size_t other = member(who);
        if (!accepts(other)) return task(own_).name() + " takes no connections of " + task(other).name();
        // After the begin the kernel may not have noticed yet that the old connection is dead.
        if (has_begun_ && may_return(other) && links_[other].connection)
          return fmt::format("{} is there already; end one of the two", task(other).name());
        // The others leave too, and this server with them.
        if (has_begun_ && !is_over_ && links_[other].goodbye && !may_return(other))
          return fmt::format("{} has left a job that ends; its server starts again in a moment", task(other).name());
        if (has_begun_) lose(other, "it has started again");
        return std::string();
      },
      [this, member](const PeerInfo& who, Connection connection) { join(member(who), std::move(connection)); });
}

void TaskLinks::join(std::size_t other, Connection connection) {
  watch_connection(connection.socket());
  connection.set_max_message_bytes(max_frame_bytes);
  Link& link = links_.at(other);
  link.connection = std::make_unique<Connection>(std::move(connection));
  link.problem.clear();
  link.is_ready = false;
  link.goodbye.reset();
  if (is_ready_ && accepts(other)) link.connection->send(encode_shared({ready_kind, has_begun_ ? "begun" : ""}));
  if (over_ && accepts(other)) link.connection->send(over_);
  if (!std::exchange(link.is_lost, false)) return;
  link.has_returned = true;
  returns_.on_returned(other);
}

void TaskLinks::connect(std::size_t other) {
  Link& link = links_[other];
  link.problem = try_to_connect(other);
  if (link.problem.empty()) {
    link.retry_delay = 0;
    return;
  }
  link.retry_delay = std::clamp(2 * link.retry_delay, first_retry_delay, max_retry_delay);
  link.retry_at = Deadline::after(link.retry_delay);
}

/// Returns why it failed; empty for success.
std::string TaskLinks::try_to_connect(std::size_t other) {
  Resolution found = resolve(task(other).address, Deadline::after(name_timeout));
  if (found.state != NameState::found) {
    return found.state == NameState::unknown ? "its name does not resolve" : "the name service does not answer";
  }
  std::string problem = "it has no address";
  for (const Endpoint& endpoint : found.endpoints) {
    ConnectAttempt attempt = begin_connect(endpoint);
    int error = attempt.error;
    if (error == EINPROGRESS) {
      error = wait_for(attempt.socket, POLLOUT, Deadline::after(connect_timeout)) ? finish_connect(attempt.socket)
                                                                                  : ETIMEDOUT;
    }
    if (error == 0) return authenticate(other, std::move(attempt.socket));
    problem = describe(error);
  }
  return problem;
}

std::string TaskLinks::authenticate(std::size_t other, Socket socket) {
  const Credentials& its = credentials_[other - workers()];
  ClientHandshake handshake(its, own_info(own_ + 1));
  // A server that loads its libraries accepts connections late.
  const Deadline deadline = Deadline::after(2 * options_.handshake_timeout);
  Connection connection(std::move(socket), max_unauthenticated_message_bytes);
  connection.send(encode_shared(handshake.hello()));
  try {
    while (connection.is_open()) {
      if (!wait_for(connection.socket(), connection.events(), deadline)) {
        return "it accepts connections, but does not answer the handshake";
      }
      connection.flush();
      connection.read();
      while (const std::optional<Frame> frame = connection.next()) {
        const ClientHandshake::Answer answer = handshake.receive(*frame);
        if (answer.frame) connection.send(encode_shared(*answer.frame));
        if (answer.is_welcome) {
          join(other, std::move(connection));  // the frames after the welcome may be larger than those before it
          Connection& joined = *links_[other].connection;
          while (std::optional<Frame> next = joined.next()) take(other, *std::move(next), {});
          if (joined.is_open()) return "";
          std::string problem = joined.problem();
          links_[other].connection.reset();
          return problem;
        }
        if (!answer.refused) continue;
        // Without a token, a refusal is as true as everything else that a server says.
        std::string reason = printable_line(answer.refused->reason);
        if (answer.refused->code == usage && !its.token.is_set()) throw UsageError(reason);
        return reason;
      }
    }
  } catch (const DataError& error) {
    return error.what();
  }
  return connection.problem();
}

void TaskLinks::send(std::size_t other, const SharedBytes& bytes, std::vector<std::span<const std::byte>> borrowed) {
  Link& link = links_.at(other);
  if (!link.connection) return lose(other, link.problem);  // an error, unless it may return
  link.connection->send(bytes, std::move(borrowed));
  while (link.connection && link.connection->unsent_bytes() > max_unsent_bytes && !is_server()) {
    if (!wait_for(link.connection->socket(), POLLOUT, Deadline::after(options_.rendezvous_timeout)))
      return lose(other, "it does not read its messages");
    link.connection->flush();
    if (!link.connection->is_open()) break;
  }
  if (!link.connection->is_open()) lose(other, link.connection->problem());
}

void TaskLinks::poll(int timeout_ms, const Handler& handler, const PlacerOf& placer_of) {
  if (has_begun_ && !early_frames_.empty()) {
    for (auto& [other, frame] : std::exchange(early_frames_, {})) {
      try {
        handler(other, std::move(frame));
      } catch (const DataError& error) {
        lose(other, fmt::format("it sent an invalid message: {}", error.what()));
      }
    }
    return;
  }
  polled_.clear();
  polled_tasks_.clear();
  for (std::size_t other = 0; other < links_.size(); ++other) {
    const Link& link = links_[other];
    if (!link.connection) continue;
    polled_tasks_.push_back(other);
    polled_.push_back({link.connection->socket().descriptor(), link.connection->events(), 0});
  }
  if (listener_) listener_->collect(polled_);
  if (::poll(polled_.data(), polled_.size(), timeout_ms) < 0) {
    if (errno != EINTR) throw InternalError("poll failed: " + std::generic_category().message(errno));
    return;
  }
  // The handler may call this function again, which would replace the entries.
  const std::vector<pollfd> polled = polled_;
  const std::vector<std::size_t> tasks = polled_tasks_;
  // Servers first: server 0 tells the others that the job is over before a worker that knows it can be lost.
  for (std::size_t i = tasks.size(); i-- > 0;) {
    if (polled[i].revents != 0 && links_[tasks[i]].connection) receive(tasks[i], handler, placer_of);
  }
  if (!listener_) return;
  listener_->handle(polled);
  log_peers();
}

void TaskLinks::receive(std::size_t other, const Handler& handler, const PlacerOf& placer_of) {
  Link& link = links_[other];
  link.connection->flush();
  try {
    link.connection->read();
    const Placer placer = placer_of ? placer_of(other) : Placer();
    while (link.connection) {  // which the handler may lose
      std::optional<Frame> frame = link.connection->next(placer);
      if (!frame) break;
      take(other, std::move(*frame), handler);
    }
  } catch (const DataError& error) {
    lose(other, fmt::format("it sent an invalid message: {}", error.what()));
    return;
  }
  if (link.connection && !link.connection->is_open()) lose(other, link.connection->problem());
}

void TaskLinks::detach() {
  for (const Link& link : links_) {
    if (link.connection) link.connection->detach();
  }
}

void TaskLinks::take(std::size_t other, Frame&& frame, const Handler& handler) {
  Link& link = links_[other];
  if (frame.kind == ready_kind) {
    link.is_ready = true;
    link.has_begun = !frame.body.empty();
  } else if (frame.kind == goodbye_kind) {
    constexpr std::uint64_t max_code = 255;
    BodyReader reader(frame.body);
    const auto code = static_cast<int>(std::min(reader.number(), max_code));
    link.goodbye = TaskGoodbye{code, printable_line(reader.text())};
  } else if (has_begun_) {
    handler(other, std::move(frame));
  } else {
    early_frames_.emplace_back(other, std::move(frame));
  }
}

void TaskLinks::lose(std::size_t other, std::string why) {
  Link& link = links_[other];
  link.connection.reset();
  link.is_ready = false;
  link.problem = std::move(why);
  if (is_over_) return;
  if (has_begun_ && may_return(other)) {
    if (!std::exchange(link.is_lost, true)) returns_.on_lost(other, link.problem);
    return;
  }
  if (link.goodbye) return;
  if (has_begun_) throw PeerError(fmt::format("lost {}: {}", name_of(other), link.problem));
  std::erase_if(early_frames_, [other](const auto& early) { return early.first == other; });
  if (accepts(other)) is_ready_ = false;  // all are told again when its successor has connected
}

void TaskLinks::log_peers() {
  for (const std::string& line : listener_->take_log_lines()) log_warning(printable_line(line));
}

void TaskLinks::say_goodbye(const TaskGoodbye& goodbye) noexcept {
  if (std::exchange(has_said_goodbye_, true)) return;
  is_over_ = true;
  try {
    BodyWriter writer;
    writer.number(static_cast<std::uint64_t>(goodbye.code)).text(goodbye.message);
    const SharedBytes bytes = encode_shared({goodbye_kind, writer.take()});
    const Deadline deadline = Deadline::after(goodbye_s);
    for (Link& link : links_) {
      if (link.connection) link.connection->send(bytes);
    }
    for (Link& link : links_) {
      while (link.connection && link.connection->is_open() && !link.connection->is_flushed() && !deadline.passed()) {
        (void)wait_for(link.connection->socket(), POLLOUT, deadline);
        link.connection->flush();
      }
      if (link.connection) link.connection->end_sending();
    }
    // A connection that is closed with unread bytes is reset, and the goodbye is lost with it.
    for (Link& link : links_) {
      while (link.connection && link.connection->is_open() && !deadline.passed()) {
        if (wait_for(link.connection->socket(), POLLIN, deadline)) static_cast<void>(link.connection->receive());
      }
    }
  } catch (const std::exception&) {  // the others notice the closed connection
  }
}

}  // namespace lockstep
