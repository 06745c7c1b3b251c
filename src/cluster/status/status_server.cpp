// See status_server.hpp.
#include "cluster/status/status_server.hpp"

#include "cluster/status/http_request.hpp"
#include "core/clock.hpp"

#include <lockstep/core/error.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t max_clients = 128;
constexpr double min_stay = 0.01;  // seconds before a client may be closed for a newer one
constexpr std::size_t max_ignored = 65536;
constexpr int max_at_once = 64;  // new connections per call

}  // namespace

StatusServer::StatusServer(Socket listener, std::function<StatusReply(const std::string& path)> answer, double limit_s)
    : listener_(std::move(listener)), answer_(std::move(answer)), limit_s_(limit_s) {}

void StatusServer::collect(std::vector<pollfd>& polled) {
  polled_from_ = polled.size();
  const double now = monotonic_seconds();
  const bool has_room = clients_.size() < max_clients || now - clients_.front().since >= min_stay;
  polled.push_back({has_room && now >= no_accept_until_ ? listener_.descriptor() : -1, POLLIN, 0});
  for (const Client& client : clients_) {
    const bool is_sending = !client.reply.empty() && !client.is_reply_sent;
    polled.push_back({client.socket.descriptor(), static_cast<short>(is_sending ? POLLOUT : POLLIN), 0});
  }
}

void StatusServer::handle(std::span<const pollfd> polled) {
  std::span<const pollfd> entries = polled.subspan(polled_from_);
  const bool has_pending_connection = entries[0].revents != 0;
  entries = entries.subspan(1);
  for (auto client = clients_.begin(); client != clients_.end();) {
    const bool stays = entries[0].revents != 0 ? serve(*client) : !client->deadline.passed();
    entries = entries.subspan(1);
    client = stays ? std::next(client) : clients_.erase(client);
  }
  if (has_pending_connection) accept_some();
}

void StatusServer::accept_some() {
  try {
    for (int i = 0; i < max_at_once; ++i) {
      const double now = monotonic_seconds();
      if (clients_.size() >= max_clients) {
        if (now - clients_.front().since < min_stay) return;
        clients_.pop_front();
      }
      std::optional<Accepted> accepted = accept_one(listener_);
      if (!accepted) return;
      clients_.push_back({std::move(accepted->socket), now, Deadline::after(limit_s_), "", "", 0, false, 0});
      if (!serve(clients_.back())) clients_.pop_back();  // most clients have sent their request by now
    }
  } catch (const InternalError&) {
    no_accept_until_ = monotonic_seconds() + 1;
  }
}

bool StatusServer::serve(Client& client) {
  if (client.deadline.passed()) return false;
  if (client.is_reply_sent || client.reply.empty()) {
    std::array<std::byte, max_http_request_bytes> bytes{};
    const Transfer got = receive_some(client.socket, bytes);
    if (client.is_reply_sent) {  // wait for the client to close
      client.ignored += got.bytes;
      return got.end != TransferEnd::closed && client.ignored <= max_ignored;
    }
    client.request_bytes.append(reinterpret_cast<const char*>(bytes.data()), got.bytes);
    client.reply = reply_to(client.request_bytes);
    if (client.reply.empty()) return got.end != TransferEnd::closed;
    client.request_bytes.clear();
  }
  const auto rest = std::as_bytes(std::span(client.reply)).subspan(client.sent);
  const Transfer sent = send_some(client.socket, rest);
  client.sent += sent.bytes;
  if (sent.end == TransferEnd::closed) return false;
  if (sent.end == TransferEnd::done) {
    // Closing at once while received bytes are unread would reset the connection and lose the reply.
    client.is_reply_sent = true;
    (void)shutdown(client.socket.descriptor(), SHUT_WR);
  }
  return true;
}

/// Empty until the request is complete.
std::string StatusServer::reply_to(const std::string& request_bytes) const {
  constexpr const char* text = "text/plain; charset=utf-8";
  try {
    const std::optional<HttpRequest> request = read_http_request(request_bytes);
    if (!request) {
      return request_bytes.size() < max_http_request_bytes ? ""
                                                           : http_reply(400, text, "the request is too long\n", false);
    }
    const bool is_head = request->method == "HEAD";
    if (!is_head && request->method != "GET") return http_reply(405, text, "only GET and HEAD are supported\n", false);
    const StatusReply reply = answer_(request->path);
    return http_reply(reply.code, reply.type, reply.body, is_head);
  } catch (const DataError& error) {
    return http_reply(400, text, std::string(error.what()) + "\n", false);
  }
}

}  // namespace lockstep
