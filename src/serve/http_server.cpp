// See http_server.hpp.
#include "serve/http_server.hpp"

#include "core/file_descriptor.hpp"

#include <lockstep/core/error.hpp>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
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

std::string_view body_of(evhttp_request* request) {
  evbuffer* const buffer = evhttp_request_get_input_buffer(request);
  const std::size_t bytes = evbuffer_get_length(buffer);
  return bytes == 0 ? std::string_view()
                    : std::string_view(reinterpret_cast<const char*>(evbuffer_pullup(buffer, -1)), bytes);
}

void send(evhttp_request* request, const RestReply& reply) {
  evkeyvalq* const headers = evhttp_request_get_output_headers(request);
  evhttp_add_header(headers, "Content-Type", reply.type.c_str());
  evhttp_add_header(headers, "Cache-Control", "no-store");
  evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
  if (reply.code == 503) evhttp_add_header(headers, "Retry-After", "1");
  const Owned<evbuffer, evbuffer_free> body(require(evbuffer_new(), "evbuffer_new"));
  evbuffer_add(body.get(), reply.body.data(), reply.body.size());
  evhttp_send_reply(request, reply.code, nullptr, body.get());
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

  explicit State(Handler its_handler) : handler(std::move(its_handler)) {}

  Handler handler;
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::uint64_t last_request = 0;
  std::map<std::uint64_t, evhttp_request*> unanswered;
  bool is_draining = false;
  Owned<event_base, event_base_free> base{require(event_base_new(), "event_base_new")};
  Owned<evhttp, evhttp_free> http{require(evhttp_new(base.get()), "evhttp_new")};
  Owned<event, event_free> woken{
      require(event_new(base.get(), mailbox->wake.number(), EV_READ | EV_PERSIST, on_wake, this), "event_new")};
  Owned<event, event_free> accepts_again{require(event_new(base.get(), -1, 0, on_accept_again, this), "event_new")};
  evhttp_bound_socket* bound = nullptr;

  static void on_request(evhttp_request* request, void* self) { static_cast<State*>(self)->handle(request); }
  static void on_wake(evutil_socket_t /*descriptor*/, short /*events*/, void* self) {
    static_cast<State*>(self)->take_mail();
  }
  static void on_close(evhttp_connection* connection, void* self) {
    std::erase_if(static_cast<State*>(self)->unanswered, [connection](const auto& entry) {
      return evhttp_request_get_connection(entry.second) == connection;
    });
  }

  /// Out of descriptors: connections that wait would wake the loop at once, again and again.
  static void on_accept_error(evconnlistener* listener, void* self) {
    evconnlistener_disable(listener);
    const timeval pause{.tv_sec = 0, .tv_usec = 100'000};
    event_add(static_cast<State*>(self)->accepts_again.get(), &pause);
  }
  static void on_accept_again(evutil_socket_t /*descriptor*/, short /*events*/, void* self) {
    auto* const state = static_cast<State*>(self);
    if (state->bound != nullptr) evconnlistener_enable(evhttp_bound_socket_get_listener(state->bound));
  }

  void handle(evhttp_request* request) {
    const char* const path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    const std::uint64_t number = ++last_request;
    unanswered.emplace(number, request);
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), on_close, this);
    const Answer answer = [number, box = mailbox](RestReply reply) {
      {
        const std::lock_guard guard(box->mutex);
        box->answered.push_back({number, std::move(reply)});
      }
      box->notify();
    };
    const std::optional<RestReply> reply =
        handler({method_of(request), path == nullptr ? "" : path, body_of(request)}, answer);
    if (reply) finish(number, *reply);
  }

  void finish(std::uint64_t number, const RestReply& reply) {
    const auto found = unanswered.find(number);
    if (found == unanswered.end()) return;  // the client has gone
    evhttp_request* const request = found->second;
    unanswered.erase(found);
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
      evhttp_del_accept_socket(http.get(), std::exchange(bound, nullptr));
      const timeval longest{.tv_sec = 5, .tv_usec = 0};
      event_base_loopexit(base.get(), &longest);
    }
    if (unanswered.empty()) {
      const timeval until_sent{.tv_sec = 0, .tv_usec = 200'000};
      event_base_loopexit(base.get(), &until_sent);
    }
  }
};

HttpServer::HttpServer(const Socket& listener, Handler handler, const HttpLimits& limits)
    : state_(std::make_unique<State>(std::move(handler))) {
  evhttp* const http = state_->http.get();
  evhttp_set_max_body_size(http, static_cast<ev_ssize_t>(limits.max_body_bytes));
  evhttp_set_max_headers_size(http, 16 << 10);
  evhttp_set_timeout(http, limits.idle_seconds);
  evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST);
  evhttp_set_gencb(http, State::on_request, state_.get());
  event_add(state_->woken.get(), nullptr);
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
