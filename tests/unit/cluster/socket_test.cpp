// Sockets on the loopback interface: transfers, closed connections, and deadlines.
#include "cluster/net/socket.hpp"

#include "cluster/net/resolve.hpp"
#include "core/clock.hpp"
#include "support/catch.hpp"
#include "support/sockets.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

using Bytes = std::vector<std::byte>;

Bytes counting(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 % 251);
  return bytes;
}

Endpoint loopback(std::uint16_t port, const std::string& host = "127.0.0.1") {
  const Resolution found = resolve(Address{host, port}, Deadline::after(1));
  REQUIRE(found.state == NameState::found);
  return found.endpoints.front();
}

/// Both ends of a connection.
std::pair<Socket, Socket> connected_pair(const std::string& host = "127.0.0.1") {
  const Socket listener = listen_on(0);
  ConnectAttempt connecting = connect_to(loopback(port_of(listener), host), Deadline::after(5));
  REQUIRE(connecting.error == 0);
  REQUIRE(wait_for(listener, POLLIN, Deadline::after(5)));
  std::optional<Accepted> accepted = accept_one(listener);
  REQUIRE(accepted.has_value());
  CHECK(accepted->peer.to_string().find(':') != std::string::npos);
  CHECK_FALSE(accept_one(listener).has_value());
  return {std::move(connecting.socket), std::move(accepted->socket)};
}

bool has_ipv6() {
  const Socket probe(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Endpoint self = loopback(0, "::1");
  return probe && bind(probe.descriptor(), self.get(), self.length) == 0;
}

}  // namespace

TEST_CASE("bytes travel both ways over IPv4 and IPv6") {
  for (const std::string host : {"127.0.0.1", "::1"}) {
    if (host == "::1" && !has_ipv6()) continue;
    CAPTURE(host);
    auto [left, right] = connected_pair(host);
    for (const Socket* socket : {&left, &right}) {
      CHECK((fcntl(socket->descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
      CHECK((fcntl(socket->descriptor(), F_GETFL) & O_NONBLOCK) != 0);
    }
    const Bytes sent = counting(5'000'000);  // more than the kernel's buffers: both sides have to wait
    Bytes received(sent.size());
    Transfer sending;
    std::thread sender([&, &from = left]() { sending = send_all(from, sent, Deadline::after(20)); });
    const Transfer transfer = receive_all(right, received, Deadline::after(20));
    sender.join();
    CHECK(sending.end == TransferEnd::done);
    CHECK(sending.bytes == sent.size());
    CHECK(transfer.end == TransferEnd::done);
    CHECK(received == sent);
    CHECK(send_all(right, counting(3), Deadline::after(1)).end == TransferEnd::done);
    Bytes three(3);
    CHECK(receive_all(left, three, Deadline::after(1)).end == TransferEnd::done);
    CHECK(three == counting(3));
  }
}

TEST_CASE("non-blocking sends return and blocking ones end at their deadline") {
  auto [left, right] = connected_pair();
  Bytes buffer(100);
  Transfer transfer = receive_some(left, buffer);
  CHECK(transfer.end == TransferEnd::would_block);
  CHECK(transfer.bytes == 0);

  REQUIRE(send_some(right, counting(40)).bytes == 40);
  double began = monotonic_seconds();
  transfer = receive_all(left, buffer, Deadline::after(0.1));
  CHECK(transfer.end == TransferEnd::timed_out);
  CHECK(transfer.bytes == 40);
  CHECK(monotonic_seconds() - began >= 0.1);
  CHECK(monotonic_seconds() - began < 5);

  began = monotonic_seconds();
  transfer = send_all(left, counting(50'000'000), Deadline::after(0.1));  // the peer does not read
  CHECK(transfer.end == TransferEnd::timed_out);
  CHECK(transfer.bytes < 50'000'000);
  CHECK(monotonic_seconds() - began < 5);
  CHECK_FALSE(wait_for(left, POLLOUT, Deadline::after(0)));
  CHECK(receive_all(left, {}, Deadline::after(0)).end == TransferEnd::done);
}

TEST_CASE("a closed peer is reported without SIGPIPE") {
  auto [left, right] = connected_pair();
  REQUIRE(send_all(right, counting(10), Deadline::after(1)).end == TransferEnd::done);
  right.close();
  CHECK_FALSE(right);
  Bytes buffer(20);
  const Transfer transfer = receive_all(left, buffer, Deadline::after(5));
  CHECK(transfer.end == TransferEnd::closed);
  CHECK(transfer.bytes == 10);
  CHECK(transfer.error == 0);
  Transfer sent = send_some(left, counting(1));  // the kernel learns of the closed peer from the reply
  for (int i = 0; i < 100 && sent.end == TransferEnd::done; ++i) {
    (void)wait_for(left, POLLIN, Deadline::after(0.01));
    sent = send_some(left, counting(1));
  }
  CHECK(sent.end == TransferEnd::closed);
  CHECK((sent.error == EPIPE || sent.error == ECONNRESET));
  CHECK_THROWS_AS(send_some(right, counting(1)), InternalError);  // a bug of the caller: the socket is closed
}

TEST_CASE("a socket has one owner") {
  Socket empty;
  CHECK_FALSE(empty);
  Socket first = listen_on(0);
  const int descriptor = first.descriptor();
  Socket second = std::move(first);
  CHECK(second.descriptor() == descriptor);
  second = listen_on(0);
  CHECK((fcntl(descriptor, F_GETFD) == -1 || second.descriptor() == descriptor));
  const int last = second.descriptor();
  second = Socket();
  CHECK(fcntl(last, F_GETFD) == -1);
}

TEST_CASE("a port in use is rejected, a recently closed one is not") {
  std::uint16_t port = 0;
  {
    const Socket listener = listen_on(0);
    port = port_of(listener);
    REQUIRE(port > 0);
    try {
      const Socket other = listen_on(port);
      FAIL("two programs listen on one port");
    } catch (const PeerError& error) {
      CHECK(std::string(error.what()).find("port " + std::to_string(port)) != std::string::npos);
    }
    ConnectAttempt connecting = connect_to(loopback(port), Deadline::after(5));
    REQUIRE(connecting.error == 0);
    REQUIRE(wait_for(listener, POLLIN, Deadline::after(5)));
    const std::optional<Accepted> accepted = accept_one(listener);  // closes first, which leaves its port in TIME_WAIT
    REQUIRE(accepted.has_value());
  }
  CHECK(port_of(listen_on(port)) == port);
}

TEST_CASE("a listener on the loopback address has no other one") {
  const Socket everywhere = listen_on(0);
  CHECK(connect_to(loopback(port_of(everywhere), "127.0.0.2"), Deadline::after(5)).error == 0);
  const Socket local = listen_on_loopback(0);
  CHECK(connect_to(loopback(port_of(local)), Deadline::after(5)).error == 0);
  CHECK(connect_to(loopback(port_of(local), "127.0.0.2"), Deadline::after(5)).error == ECONNREFUSED);
  CHECK_THROWS_AS(listen_on_loopback(port_of(everywhere)), PeerError);
}

TEST_CASE("a connection attempt reports its outcome") {
  const Socket closed(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // bound but not listening
  const Endpoint self = loopback(0);
  REQUIRE(bind(closed.descriptor(), self.get(), self.length) == 0);
  CHECK(connect_to(loopback(port_of(closed)), Deadline::after(5)).error == ECONNREFUSED);
  CHECK(connect_to(loopback(5000, "127.255.255.255"), Deadline::after(5)).error != 0);  // a broadcast address

  // A listener that never accepts: once its queue is full, the kernel stops answering.
  const Socket listener = listen_on(0, 0);
  std::vector<ConnectAttempt> queue;
  while (queue.size() < 20 && (queue.empty() || queue.back().error == 0)) {
    queue.push_back(connect_to(loopback(port_of(listener)), Deadline::after(0.3)));
  }
  CHECK(queue.back().error == ETIMEDOUT);
}

TEST_CASE("endpoints are formatted as users write them") {
  CHECK(loopback(5000).to_string() == "127.0.0.1:5000");
  CHECK(loopback(80, "fd00::7").to_string() == "[fd00::7]:80");
  CHECK(loopback(80, "::ffff:10.0.0.7").to_string() == "10.0.0.7:80");
  CHECK(Endpoint().to_string() == "an unknown address");
}

TEST_CASE("deadlines expire") {
  CHECK(Deadline::after(0).passed());
  CHECK(Deadline::after(-5).seconds_left() == 0);
  CHECK(Deadline::after(-5).poll_timeout() == 0);
  CHECK_FALSE(Deadline::never().passed());
  CHECK(Deadline::never().poll_timeout() == -1);
  CHECK(Deadline::after(10).poll_timeout() > 9000);
  CHECK(Deadline::after(10).poll_timeout() <= 10'000);
  CHECK(Deadline::after(1e12).poll_timeout() > 1'000'000);
  CHECK(Deadline::after(1) < Deadline::never());
}
