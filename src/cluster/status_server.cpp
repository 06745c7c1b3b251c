// See status_server.hpp.
#include "cluster/status_server.hpp"

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

#include "cluster/http_request.hpp"
#include "core/clock.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t most_visitors = 32;
constexpr double least_stay = 0.1;  // also where others wait
constexpr std::size_t most_ignored = 65536;
constexpr int most_at_once = 16;  // of new connections, between two looks at all else

}  // namespace

StatusServer::StatusServer(Socket listener, std::function<StatusReply(const std::string& path)> answer, double limit_s)
    : listener_(std::move(listener)), answer_(std::move(answer)), limit_s_(limit_s) {}

void StatusServer::collect(std::vector<pollfd>& polled) {
  polled_from_ = polled.size();
  const double now = monotonic_seconds();
  const bool has_room = visitors_.size() < most_visitors || now - visitors_.front().since >= least_stay;
  polled.push_back({has_room && now >= no_accept_until_ ? listener_.descriptor() : -1, POLLIN, 0});
  for (const Visitor& visitor : visitors_) {
    const bool is_sending = !visitor.reply.empty() && !visitor.was_told;
    polled.push_back({visitor.socket.descriptor(), static_cast<short>(is_sending ? POLLOUT : POLLIN), 0});
  }
}

void StatusServer::handle(std::span<const pollfd> polled) {
  std::span<const pollfd> entries = polled.subspan(polled_from_);
  const bool somebody_waits = entries[0].revents != 0;
  entries = entries.subspan(1);
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    const bool stays = entries[0].revents != 0 ? serve(*visitor) : !visitor->deadline.passed();
    entries = entries.subspan(1);
    visitor = stays ? std::next(visitor) : visitors_.erase(visitor);
  }
  if (somebody_waits) accept_some();
}

void StatusServer::accept_some() {
  try {
    for (int i = 0; i < most_at_once; ++i) {
      const double now = monotonic_seconds();
      if (visitors_.size() >= most_visitors) {
        if (now - visitors_.front().since < least_stay) return;
        visitors_.pop_front();
      }
      std::optional<Accepted> accepted = accept_one(listener_);
      if (!accepted) return;
      visitors_.push_back({std::move(accepted->socket), now, Deadline::after(limit_s_), "", "", 0, false, 0});
      if (!serve(visitors_.back())) visitors_.pop_back();  // most have asked by now
    }
  } catch (const InternalError&) {
    no_accept_until_ = monotonic_seconds() + 1;
  }
}

bool StatusServer::serve(Visitor& visitor) {
  if (visitor.deadline.passed()) return false;
  if (visitor.was_told || visitor.reply.empty()) {
    std::array<std::byte, longest_http_request> bytes{};
    const Transfer got = receive_some(visitor.socket, bytes);
    if (visitor.was_told) {  // until it has seen the end
      visitor.ignored += got.bytes;
      return got.end != TransferEnd::closed && visitor.ignored <= most_ignored;
    }
    visitor.asked.append(reinterpret_cast<const char*>(bytes.data()), got.bytes);
    visitor.reply = reply_to(visitor.asked);
    if (visitor.reply.empty()) return got.end != TransferEnd::closed;
    visitor.asked.clear();
  }
  const auto rest = std::as_bytes(std::span(visitor.reply)).subspan(visitor.sent);
  const Transfer sent = send_some(visitor.socket, rest);
  visitor.sent += sent.bytes;
  if (sent.end == TransferEnd::closed) return false;
  if (sent.end == TransferEnd::done) {
    // Closed at once, a connection whose last bytes nobody has read takes the answer with it.
    visitor.was_told = true;
    (void)shutdown(visitor.socket.descriptor(), SHUT_WR);
  }
  return true;
}

/// Empty while it is not known.
std::string StatusServer::reply_to(const std::string& asked) const {
  constexpr const char* text = "text/plain; charset=utf-8";
  try {
    const std::optional<HttpRequest> request = read_http_request(asked);
    if (!request) {
      return asked.size() < longest_http_request ? "" : http_reply(400, text, "the request is too long\n", false);
    }
    const bool is_head = request->method == "HEAD";
    if (!is_head && request->method != "GET") return http_reply(405, text, "only GET is answered here\n", false);
    const StatusReply reply = answer_(request->path);
    return http_reply(reply.code, reply.type, reply.body, is_head);
  } catch (const DataError& error) {
    return http_reply(400, text, std::string(error.what()) + "\n", false);
  }
}

}  // namespace lockstep
