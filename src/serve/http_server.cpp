// See http_server.hpp.
#include "serve/http_server.hpp"

#include "core/clock.hpp"
#include "core/file_descriptor.hpp"
#include "core/lower_case.hpp"
#include "serve/head_scanner.hpp"

#include <lockstep/core/error.hpp>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

template <auto release>
struct Release {
  template <typename Handle>
  void operator()(Handle* handle) const noexcept {
    release(handle);
  }
};

template <typename Handle, auto release>
using Owned = std::unique_ptr<Handle, Release<release>>;

template <typename Handle>
Handle* require(Handle* handle, const char* call) {
  if (handle == nullptr) throw InternalError(std::string("libevent: ") + call + " failed");
  return handle;
}

std::string_view method_of(evhttp_request* request) {
  switch (evhttp_request_get_command(request)) {
    case EVHTTP_REQ_GET: return "GET";
    case EVHTTP_REQ_HEAD: return "HEAD";
    case EVHTTP_REQ_POST: return "POST";
    default: return "";
  }
}

/// A token of RFC 9110.
bool is_header_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("!#$%&'*+-.^_`|~").find(static_cast<char>(c)) != std::string::npos;
  });
}

RestReply refusal(int code, std::string_view sentence) {
  return {.code = code, .body = fmt::format("{{\"error\":\"{}\"}}\n", sentence)};
}

/// What makes a request ambiguous or unreadable, whatever its path. libevent takes the first of several lengths, and a
/// proxy before it perhaps the last. It takes "Content-Length " for another header, joins folded lines, and reads a
/// body of any other Transfer-Encoding as a chunked one. It refuses a length beside a Transfer-Encoding itself.
std::optional<RestReply> refuse_form(evhttp_request* request, const HeadScanner& head) {
  if (head.has_folded_line()) return refusal(400, "a header of the request is folded; send it in one line");
  bool has_length = false;
  const evkeyvalq* const headers = evhttp_request_get_input_headers(request);
  for (const evkeyval* header = headers->tqh_first; header != nullptr; header = header->next.tqe_next) {
    if (!is_header_name(header->key))
      return refusal(400, "the request has a header whose name has a space or another wrong character");
    const std::string name = lower_case(header->key);
    if (name == "content-length" && std::exchange(has_length, true))
      return refusal(400, "the request has several Content-Length headers");
    if (name == "transfer-encoding" && lower_case(header->value) != "chunked")
      return refusal(501, "the request has a Transfer-Encoding other than chunked");
    if (name == "content-encoding" && lower_case(header->value) != "identity")
      return refusal(415, "the body is encoded; send it without Content-Encoding");
  }
  return std::nullopt;
}

std::string_view client_of(evhttp_connection* connection) {
  char* address = nullptr;
  ev_uint16_t port = 0;
  evhttp_connection_get_peer(connection, &address, &port);
  return address == nullptr ? std::string_view() : address;
}

int descriptor_of(evhttp_connection* connection) {
  return static_cast<int>(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)));
}

std::string_view body_of(evhttp_request* request) {
  evbuffer* const buffer = evhttp_request_get_input_buffer(request);
  const std::size_t bytes = evbuffer_get_length(buffer);
  if (bytes == 0) return {};
  const auto* const body = reinterpret_cast<const char*>(evbuffer_pullup(buffer, -1));
  if (body == nullptr) throw std::bad_alloc();
  return {body, bytes};
}

void send(evhttp_request* request, const RestReply& reply) {
  int code = reply.code;
  evkeyvalq* const headers = evhttp_request_get_output_headers(request);
  evhttp_add_header(headers, "Content-Type", reply.type.c_str());
  evhttp_add_header(headers, "Cache-Control", "no-store");
  evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
  if (reply.code == 503 || reply.code == 429) evhttp_add_header(headers, "Retry-After", "1");
  const Owned<evbuffer, evbuffer_free> body(require(evbuffer_new(), "evbuffer_new"));
  if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
    evhttp_add_header(headers, "Content-Length", std::to_string(reply.body.size()).c_str());
  } else if (evbuffer_add(body.get(), reply.body.data(), reply.body.size()) != 0) {
    code = 503;  // out of memory
  }
  evhttp_send_reply(request, code, nullptr, body.get());
}

}  // namespace

/// Members are released from the last to the first: libevent's objects before their base.
struct HttpServer::State {
  struct Answered {
    std::uint64_t request;
    RestReply reply;
  };

  /// Shared with the answers that are still to come, which may outlive the server.
  struct Mailbox {
    std::mutex mutex;
    std::vector<Answered> answered;
    bool is_stopping = false;
    FileDescriptor wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

    void notify() const {
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = write(wake.number(), &one, sizeof one);
    }
  };

  /// What a connection receives.
  struct Input {
    ConnectionTable::Connection* connection = nullptr;
    HeadScanner head = {};  ///< of the request that arrives, or that is answered
  };

  State(Handler its_handler, const ConnectionLimits& limits)
      : handler(std::move(its_handler)), connections(limits), request_seconds(limits.request_seconds) {}

  Handler handler;
  ConnectionTable connections;
  double request_seconds;
  std::map<int, Input> inputs;         ///< by descriptor; its values do not move
  std::vector<bufferevent*> accepted;  ///< whose descriptors are not set yet
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::uint64_t last_request = 0;
  std::map<std::uint64_t, evhttp_request*> unanswered;
  std::set<evhttp_connection*> sending;  ///< replies, which their clients have not read to the end
  bool is_draining = false;
  bool has_deadline = false;
  Owned<event_base, event_base_free> base{require(event_base_new(), "event_base_new")};
  Owned<evhttp, evhttp_free> http{require(evhttp_new(base.get()), "evhttp_new")};
  Owned<event, event_free> woken{
      require(event_new(base.get(), mailbox->wake.number(), EV_READ | EV_PERSIST, on_wake, this), "event_new")};
  Owned<event, event_free> adds_accepted{require(event_new(base.get(), -1, 0, on_accepted, this), "event_new")};
  Owned<event, event_free> each_second{require(event_new(base.get(), -1, EV_PERSIST, on_second, this), "event_new")};
  evhttp_bound_socket* bound = nullptr;

  /// Called for each connection, which gets its descriptor when this returns.
  static bufferevent* on_accept(event_base* base, void* self) {
    auto* const state = static_cast<State*>(self);
    bufferevent* const accepted = bufferevent_socket_new(base, -1, 0);
    if (accepted == nullptr) return nullptr;
    state->accepted.push_back(accepted);
    event_active(state->adds_accepted.get(), EV_TIMEOUT, 0);
    return accepted;
  }
  static void on_accepted(evutil_socket_t /*descriptor*/, short /*events*/, void* self) {
    auto* const state = static_cast<State*>(self);
    for (bufferevent* const each : std::exchange(state->accepted, {})) {
      ConnectionTable::Connection& added =
          state->connections.add(static_cast<int>(bufferevent_getfd(each)), monotonic_seconds());
      Input& input = state->inputs[static_cast<int>(bufferevent_getfd(each))] = {.connection = &added};
      evbuffer_add_cb(bufferevent_get_input(each), on_bytes, &input);
    }
  }
  static void on_bytes(evbuffer* buffer, const evbuffer_cb_info* change, void* its_input) {
    if (change->n_added == 0) return;
    Input& input = *static_cast<Input*>(its_input);
    if (!input.head.is_complete()) scan(buffer, evbuffer_get_length(buffer) - change->n_added, input.head);
    input.connection->receive(change->n_added);
  }
  /// Reads the buffer from `begin` to its end, or to that of the head.
  static void scan(evbuffer* buffer, std::size_t begin, HeadScanner& head) {
    evbuffer_ptr place{};
    if (evbuffer_ptr_set(buffer, &place, begin, EVBUFFER_PTR_SET) != 0) return;
    std::array<char, 4096> bytes{};
    while (!head.is_complete()) {
      const ev_ssize_t count = evbuffer_copyout_from(buffer, &place, bytes.data(), bytes.size());
      if (count <= 0) return;
      head.read({bytes.data(), static_cast<std::size_t>(count)});
      if (evbuffer_ptr_set(buffer, &place, static_cast<std::size_t>(count), EVBUFFER_PTR_ADD) != 0) return;
    }
  }
  static void on_second(evutil_socket_t /*descriptor*/, short /*events*/, void* self) {
    static_cast<State*>(self)->connections.sweep(monotonic_seconds());
  }

  static void on_request(evhttp_request* request, void* self) { static_cast<State*>(self)->handle(request); }
  static void on_wake(evutil_socket_t /*descriptor*/, short /*events*/, void* self) {
    static_cast<State*>(self)->take_mail();
  }
  static void on_close(evhttp_connection* connection, void* self) {
    auto* const state = static_cast<State*>(self);
    state->connections.remove(descriptor_of(connection));
    std::erase_if(state->unanswered, [connection](const auto& entry) {
      return evhttp_request_get_connection(entry.second) == connection;
    });
    state->sending.erase(connection);
    state->end_if_answered();
  }
  static void on_sent(evhttp_request* request, void* self) {
    auto* const state = static_cast<State*>(self);
    state->sending.erase(evhttp_request_get_connection(request));
    state->end_if_answered();
  }

  /// Out of descriptors: connections that wait would wake the loop at once, again and again. libevent passes evhttp's
  /// argument, not ours; the listener lives as long as the loop.
  static void on_accept_error(evconnlistener* listener, void* /*http*/) {
    evconnlistener_disable(listener);
    const timeval pause{.tv_sec = 0, .tv_usec = 100'000};
    event_base_once(evconnlistener_get_base(listener), -1, EV_TIMEOUT, on_accept_again, listener, &pause);
  }
  static void on_accept_again(evutil_socket_t /*descriptor*/, short /*events*/, void* listener) {
    evconnlistener_enable(static_cast<evconnlistener*>(listener));
  }

  void handle(evhttp_request* request) {
    const std::uint64_t number = ++last_request;
    unanswered.emplace(number, request);
    evhttp_connection* const connection = evhttp_request_get_connection(request);
    evhttp_connection_set_closecb(connection, on_close, this);
    connections.begin_reply(descriptor_of(connection));
    if (const std::optional<RestReply> refusal = refuse_form(request, input_of(connection).head)) {
      evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");  // what follows is unsure
      finish(number, *refusal);
      return;
    }
    const char* const path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    const Answer answer = [number, box = mailbox](RestReply reply) {
      {
        const std::lock_guard guard(box->mutex);
        box->answered.push_back({number, std::move(reply)});
      }
      box->notify();
    };
    std::optional<RestReply> reply;
    try {
      reply = handler(
          {method_of(request), path == nullptr ? "" : path, body_of(request), client_of(connection), &connections},
          answer);
    } catch (const std::bad_alloc&) {
      reply = refusal(503, "the server is out of memory; try again later");
    }
    if (reply) finish(number, *reply);
  }

  void finish(std::uint64_t number, const RestReply& reply) {
    const auto found = unanswered.find(number);
    if (found == unanswered.end()) return;  // the client has gone
    evhttp_request* const request = found->second;
    unanswered.erase(found);
    evhttp_connection* const connection = evhttp_request_get_connection(request);
    connections.end_reply(descriptor_of(connection), monotonic_seconds());
    // What has arrived behind the request begins the next one.
    HeadScanner& next = input_of(connection).head = {};
    scan(bufferevent_get_input(evhttp_connection_get_bufferevent(connection)), 0, next);
    sending.insert(connection);
    evhttp_request_set_on_complete_cb(request, on_sent, this);
    if (is_draining) evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
    send(request, reply);
  }

  void take_mail() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(mailbox->wake.number(), &count, sizeof count);
    std::vector<Answered> answered;
    {
      const std::lock_guard guard(mailbox->mutex);
      answered.swap(mailbox->answered);
      is_draining = mailbox->is_stopping;
    }
    for (const Answered& each : answered) finish(each.request, each.reply);
    if (!is_draining) return;
    if (bound != nullptr) {
      evconnlistener* const listener = evhttp_bound_socket_get_listener(std::exchange(bound, nullptr));
      evconnlistener_set_cb(listener, nullptr, nullptr);  // it stays disabled, whoever enables it
      shutdown(evconnlistener_get_fd(listener), SHUT_RD);
    }
    end_if_answered();
  }

  /// Ends the loop when all requests are answered and the answers are sent. Waits a moment for requests that are on
  /// their way, and as long as a request may take for clients that do not read.
  void end_if_answered() {
    if (!is_draining || !unanswered.empty()) return;
    if (!std::exchange(has_deadline, true)) end_in(request_seconds);
    if (sending.empty()) end_in(0.2);
  }

  void end_in(double seconds) const {
    const timeval duration{.tv_sec = static_cast<time_t>(seconds),
                           .tv_usec = static_cast<suseconds_t>(1e6 * (seconds - std::floor(seconds)))};
    event_base_loopexit(base.get(), &duration);
  }

  Input& input_of(evhttp_connection* connection) { return inputs[descriptor_of(connection)]; }
};

HttpServer::HttpServer(const Socket& listener, Handler handler, const HttpLimits& limits)
    : state_(std::make_unique<State>(std::move(handler), limits.connections)) {
  evhttp* const http = state_->http.get();
  evhttp_set_max_body_size(http, static_cast<ev_ssize_t>(limits.max_body_bytes));
  evhttp_set_max_headers_size(http, 16 << 10);
  evhttp_set_timeout(http, static_cast<int>(std::ceil(limits.connections.request_seconds)));
  evhttp_set_bevcb(http, State::on_accept, state_.get());
  // The handler refuses others in its own form.
  evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
                                       EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE | EVHTTP_REQ_PATCH);
  evhttp_set_gencb(http, State::on_request, state_.get());
  event_add(state_->woken.get(), nullptr);
  const timeval second{.tv_sec = 1, .tv_usec = 0};
  event_add(state_->each_second.get(), &second);
  const int own = fcntl(listener.descriptor(), F_DUPFD_CLOEXEC, 0);
  state_->bound = require(evhttp_accept_socket_with_handle(http, own), "evhttp_accept_socket_with_handle");
  evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(state_->bound), State::on_accept_error);
}

HttpServer::~HttpServer() = default;

void HttpServer::run() { event_base_dispatch(state_->base.get()); }

void HttpServer::stop() {
  {
    const std::lock_guard guard(state_->mailbox->mutex);
    state_->mailbox->is_stopping = true;
  }
  state_->mailbox->notify();
}

}  // namespace lockstep
