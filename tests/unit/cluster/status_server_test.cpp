// The status port with regular and misbehaving clients.
#include "cluster/status/status_server.hpp"

#include "cluster/net/endpoint.hpp"
#include "core/clock.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"
#include "support/sockets.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

Endpoint here(std::uint16_t port) {
  Endpoint endpoint;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  std::memcpy(&endpoint.storage, &address, sizeof address);
  endpoint.length = sizeof address;
  return endpoint;
}

/// A server with its poll loop, and clients in the same thread.
struct Port {
  explicit Port(double limit_s = 5, std::size_t page = 0)
      : body(page, 'x'),
        server(
            Socket(dup(listener.descriptor())),
            [this](const std::string& path) {
              ++answers;
              if (path == "/metrics") return StatusReply{200, "text/plain", body};
              return path == "/healthz" ? StatusReply{503, "text/plain", "not well\n"}
                                        : StatusReply{404, "text/plain", "no\n"};
            },
            limit_s) {}

  void turn(int timeout_ms = 0) {
    std::vector<pollfd> polled{{-1, 0, 0}};  // an entry of the launcher
    server.collect(polled);
    (void)poll(polled.data(), polled.size(), timeout_ms);
    const double ready = monotonic_seconds();
    server.handle(polled);
    max_turn = std::max(max_turn, monotonic_seconds() - ready);
  }

  Socket visit() const {
    ConnectAttempt client = connect_to(here(port_of(listener)), Deadline::after(5));
    REQUIRE(client.error == 0);
    return std::move(client.socket);
  }

  static void say(const Socket& client, const std::string& bytes) {
    (void)send_some(client, std::as_bytes(std::span(bytes)));
  }

  /// Reads until the connection ends or `seconds` have passed.
  std::string hear(const Socket& client, double seconds = 30) {
    std::string all;
    std::array<std::byte, 65536> bytes{};
    for (const Deadline deadline = Deadline::after(seconds); !deadline.passed();) {
      turn(1);
      const Transfer got = receive_some(client, bytes);
      all.append(reinterpret_cast<const char*>(bytes.data()), got.bytes);
      if (got.end == TransferEnd::closed) return all;
    }
    return all + "<still open>";
  }

  std::string ask(const std::string& bytes) {
    const Socket client = visit();
    say(client, bytes);
    return hear(client);
  }

  std::string body;
  int answers = 0;
  double max_turn = 0;
  Socket listener = listen_on(0);
  StatusServer server;
};

std::string get(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: here\r\n\r\n"; }

bool begins_with(const std::string& reply, const std::string& beginning) { return reply.rfind(beginning, 0) == 0; }

}  // namespace

TEST_CASE("the status port answers GET and HEAD and rejects other requests") {
  Port port;
  CHECK(begins_with(port.ask(get("/healthz")), "HTTP/1.1 503 Service Unavailable\r\n"));
  CHECK(port.ask(get("/healthz?verbose")).ends_with("\r\n\r\nnot well\n"));
  CHECK(port.ask("HEAD /healthz HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
  CHECK(begins_with(port.ask(get("/metrics")), "HTTP/1.1 200 OK\r\n"));
  CHECK(begins_with(port.ask(get("/")), "HTTP/1.1 404 Not Found\r\n"));
  const int answers = port.answers;
  CHECK(begins_with(port.ask("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"), "HTTP/1.1 405 "));
  CHECK(begins_with(port.ask("\x16\x03\x01\x02"), "HTTP/1.1 400 "));
  CHECK(begins_with(port.ask("GET / HTTP/1.1\r\nX: " + std::string(5000, 'x')), "HTTP/1.1 400 "));
  CHECK(begins_with(port.ask("GET /" + std::string(100000, 'x')), "HTTP/1.1 400 "));
  CHECK(port.answers == answers);
}

TEST_CASE("requests and long replies may be fragmented") {
  Port port(5, 8 << 20U);
  const Socket client = port.visit();
  for (const char c : get("/metrics")) {
    Port::say(client, std::string(1, c));
    port.turn(1);
  }
  const std::string reply = port.hear(client);
  CHECK(reply.size() > port.body.size());
  CHECK(reply.ends_with(port.body));
  CHECK(port.server.num_clients() <= 1);
}

TEST_CASE("silent, incomplete and non-reading clients are disconnected in time") {
  Port port(0.3, 64 << 20U);
  const Socket silent = port.visit();
  const Socket slow = port.visit();
  const Socket deaf = port.visit();
  Port::say(deaf, get("/metrics"));
  const double began = monotonic_seconds();
  for (int i = 0; port.server.num_clients() > 0 || i < 3; ++i) {
    Port::say(slow, i == 0 ? "GET /" : "x");
    port.turn(20);
    REQUIRE(monotonic_seconds() - began < 20);
  }
  CHECK(monotonic_seconds() - began > 0.25);
}

TEST_CASE("requests are answered while idle clients hold connections") {
  Port port;
  std::list<Socket> others;
  for (int i = 0; i < 200; ++i) {
    others.push_back(port.visit());
    if (i % 3 == 0) Port::say(others.back(), "GET /slow");
    if (i % 20 == 0) port.turn();
  }
  const double began = monotonic_seconds();
  CHECK(begins_with(port.ask(get("/metrics")), "HTTP/1.1 200 OK\r\n"));
  CHECK(monotonic_seconds() - began < 20);
  CHECK(port.server.num_clients() <= 128);
}

TEST_CASE("junk on the status port does not delay other clients") {
  Port port;
  RandomStream random(7, RandomPurpose::test, 5);
  for (int i = 0; i < 2000; ++i) {
    const Socket client = port.visit();
    std::string junk(random.next() % 300, '\0');
    for (char& c : junk) c = static_cast<char>(random.next());
    if (i % 4 == 0) junk = get("/metrics").substr(0, random.next() % 30);
    Port::say(client, junk);
    port.turn();
    if (i % 100 == 0) REQUIRE(begins_with(port.ask(get("/metrics")), "HTTP/1.1 200 OK\r\n"));
  }
  CHECK(port.max_turn < 5);
  CHECK(begins_with(port.ask(get("/healthz")), "HTTP/1.1 503 "));
}

TEST_CASE("hundreds of silent connections delay a request by little") {
  Port port;
  std::list<Socket> silent;
  for (int i = 0; i < 700; ++i) silent.push_back(port.visit());
  const Socket probe = port.visit();
  Port::say(probe, get("/healthz"));
  int turns = 0;
  while (port.answers == 0 && turns < 1000) {
    port.turn();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++turns;
  }
  CHECK(turns <= 60);
}
