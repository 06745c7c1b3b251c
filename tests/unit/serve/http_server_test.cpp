// The HTTP server: what it does with odd requests, and how it stops.
#include "serve/http_server.hpp"
#include "cluster/net/socket.hpp"
#include "serve/head_scanner.hpp"
#include "support/catch.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

/// A connection that waits up to 20 s for each byte.
class Client {
 public:
  explicit Client(std::uint16_t port) {
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~Client() { close(descriptor_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view bytes) const {
    REQUIRE(::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }

  /// Reads until what is read contains `last`, or to the end.
  [[nodiscard]] std::string read(std::string_view last = {}) const {
    std::string text;
    std::array<char, 65536> bytes{};
    while (last.empty() || text.find(last) == std::string::npos) {
      const ssize_t count = recv(descriptor_, bytes.data(), bytes.size(), 0);
      if (count <= 0) break;
      text.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  int descriptor_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
};

/// Answers /now at once, /large with 32 MB, and others when told to.
class Server {
 public:
  Server()
      : listener_(listen_on_loopback(0)),
        server_(listener_,
                [this](const RestRequest& request, const HttpServer::Answer& answer) {
                  if (request.path == "/now") return std::optional(RestReply{.body = "at once\n"});
                  if (request.path == "/large")
                    return std::optional(RestReply{.body = std::string(32'000'000, 'a') + "end"});
                  asked_.set_value(answer);
                  return std::optional<RestReply>();
                },
                {}) {}
  ~Server() {
    server_.stop();
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_of(listener_); }
  HttpServer::Answer asked() { return asked_.get_future().get(); }
  void stop() { server_.stop(); }

 private:
  Socket listener_;
  std::promise<HttpServer::Answer> asked_;
  HttpServer server_;
  std::thread thread_{[this] { server_.run(); }};
};

std::string reply_to(const Server& server, std::string_view request) {
  const Client client(server.port());
  client.send(request);
  return client.read();
}

bool is_folded(std::string_view head) {
  HeadScanner scanner;
  for (const char each : head) scanner.read({&each, 1});
  REQUIRE(scanner.is_complete());
  return scanner.has_folded_line();
}

}  // namespace

TEST_CASE("a server that stops sends each answer, however long it takes") {
  Server server;
  const Client client(server.port());
  client.send("GET /later HTTP/1.1\r\n\r\n");
  const HttpServer::Answer answer = server.asked();
  server.stop();
  std::this_thread::sleep_for(5500ms);
  answer({.body = "at last\n"});
  const std::string reply = client.read();
  CHECK(reply.starts_with("HTTP/1.1 200"));
  CHECK(reply.ends_with("at last\n"));
}

TEST_CASE("a server that stops waits for clients that read slowly, and answers requests on open connections") {
  Server server;
  const Client slow(server.port());
  const Client open(server.port());
  slow.send("GET /large HTTP/1.1\r\n\r\n");
  open.send("GET /now HTTP/1.1\r\n\r\n");
  CHECK(open.read("at once\n").ends_with("at once\n"));
  server.stop();
  std::this_thread::sleep_for(100ms);
  open.send("GET /now HTTP/1.1\r\n\r\n");
  CHECK(open.read().find("Connection: close") != std::string::npos);
  std::this_thread::sleep_for(1s);
  CHECK(slow.read().ends_with("end"));
}

TEST_CASE("HEAD is answered by the headers of GET") {
  const Server server;
  const std::string reply = reply_to(server, "HEAD /now HTTP/1.1\r\nConnection: close\r\n\r\n");
  CHECK(reply.starts_with("HTTP/1.1 200"));
  CHECK(reply.find("Content-Length: 8\r\n") != std::string::npos);
  CHECK(reply.ends_with("\r\n\r\n"));
}

TEST_CASE("header lines that others read in another way are refused, and the connection is closed") {
  const Server server;
  for (const char* header : {"Content-Length : 37", "Content-Length\t: 37", "X: a\r\n b", "X: a\r\n\tb",
                             "Content-Length:\r\n 0", "Transfer-Encoding:\r\n chunked"}) {
    CAPTURE(header);
    const std::string reply =
        reply_to(server, std::string("GET /now HTTP/1.1\r\n") + header + "\r\n\r\n0\r\n\r\nGET /now HTTP/1.1\r\n\r\n");
    CHECK(reply.starts_with("HTTP/1.1 400"));
    CHECK(reply.find("Connection: close") != std::string::npos);
    CHECK(reply.find("at once") == std::string::npos);
  }
}

TEST_CASE("the head of each request of a connection is looked at, and no body") {
  const Server server;
  const Client client(server.port());
  const std::string plain = "POST /now HTTP/1.1\r\nContent-Length: 5\r\n\r\n1\r\n 2";
  client.send(plain + plain);  // the second one arrives before the first one is answered
  std::string replies = client.read("at once\n");
  if (replies.find("at once\n") == replies.rfind("at once\n")) replies += client.read("at once\n");
  CHECK(replies.find(" 400 ") == std::string::npos);
  client.send(plain);
  CHECK(client.read("at once\n").starts_with("HTTP/1.1 200"));
  client.send(plain + "GET /now HTTP/1.1\r\nX: a\r\n b\r\n\r\n");
  const std::string last = client.read();
  CHECK(last.starts_with("HTTP/1.1 200"));
  CHECK(last.find("HTTP/1.1 400") != std::string::npos);
}

TEST_CASE("folded lines are found in the head alone") {
  CHECK_FALSE(is_folded("GET / HTTP/1.1\r\nA: b\r\n\r\n"));
  CHECK_FALSE(is_folded("\r\nGET / HTTP/1.1\nA: b\n\n c"));
  CHECK_FALSE(is_folded("GET / HTTP/1.1\r\n\r\n c"));
  CHECK(is_folded("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n"));
  CHECK(is_folded("GET / HTTP/1.1\n\tc\n\n"));
  CHECK(is_folded("GET / HTTP/1.1\n \n\n"));
}
