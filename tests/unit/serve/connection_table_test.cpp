// Limits of a server's connections, on sockets of its own, and of its clients' requests.
#include "serve/connection_table.hpp"
#include "core/file_descriptor.hpp"
#include "serve/rate_limiter.hpp"
#include "support/catch.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

struct Client {
  FileDescriptor own;
  FileDescriptor served;

  Client() {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    own = FileDescriptor(ends[0]);
    served = FileDescriptor(ends[1]);
  }

  /// Whether the server has ended the connection.
  [[nodiscard]] bool is_ended() const {
    char byte = 0;
    return recv(own.number(), &byte, 1, MSG_DONTWAIT) == 0;
  }
};

}  // namespace

TEST_CASE("a request that is not whole in time ends its connection") {
  ConnectionTable table({.request_seconds = 10});
  const Client slow;
  const Client answered;
  const Client waiting;
  ConnectionTable::Connection& dripping = table.add(slow.served.number(), 0);
  table.add(answered.served.number(), 0);
  table.add(waiting.served.number(), 0);
  table.begin_reply(waiting.served.number());  // the model takes its time
  for (int second = 1; second <= 10; ++second) {
    dripping.receive(1);
    table.sweep(second);
  }
  table.begin_reply(answered.served.number());
  table.end_reply(answered.served.number(), 10);
  CHECK(!slow.is_ended());
  table.sweep(11);
  CHECK(slow.is_ended());
  CHECK(!answered.is_ended());
  CHECK(!waiting.is_ended());
  CHECK(table.size() == 2);
  CHECK(table.received_bytes() == 0);
  CHECK(table.ended(EndOfConnection::late) == 1);
  dripping.receive(5);  // was on its way
  CHECK(table.received_bytes() == 0);
  table.sweep(20.5);
  CHECK(answered.is_ended());
}

TEST_CASE("the connection that waits longest makes room for a new one") {
  ConnectionTable table({.max_connections = 2});
  const std::array<Client, 4> clients;
  table.add(clients[0].served.number(), 0);
  table.add(clients[1].served.number(), 1);
  table.begin_reply(clients[0].served.number());
  table.add(clients[2].served.number(), 2);
  CHECK(clients[1].is_ended());
  table.begin_reply(clients[2].served.number());
  table.add(clients[3].served.number(), 3);
  CHECK(clients[3].is_ended());  // the others have requests
  CHECK(!clients[0].is_ended());
  CHECK(!clients[2].is_ended());
  CHECK(table.size() == 2);
  CHECK(table.ended(EndOfConnection::crowded) == 2);
}

TEST_CASE("requests that are not answered hold so many bytes and no more") {
  ConnectionTable table({.max_received_bytes = 100});
  const std::array<Client, 2> clients;
  ConnectionTable::Connection& first = table.add(clients[0].served.number(), 0);
  ConnectionTable::Connection& second = table.add(clients[1].served.number(), 0);
  first.receive(60);
  table.begin_reply(clients[0].served.number());
  second.receive(40);
  CHECK(table.received_bytes() == 100);
  second.receive(1);
  CHECK(clients[1].is_ended());
  CHECK(!clients[0].is_ended());
  CHECK(table.received_bytes() == 60);
  table.end_reply(clients[0].served.number(), 1);
  CHECK(table.received_bytes() == 0);
  CHECK(table.ended(EndOfConnection::memory) == 1);
}

TEST_CASE("a descriptor that is used again is another connection") {
  ConnectionTable table({.max_connections = 1, .request_seconds = 10});
  Client gone;
  table.add(gone.served.number(), 0).receive(7);
  const int number = gone.served.number();
  gone.served = FileDescriptor();
  gone.own = FileDescriptor();
  const Client next;
  REQUIRE((next.served.number() == number || next.own.number() == number));
  table.sweep(100);  // another socket has its number now
  CHECK(!next.is_ended());
  CHECK(table.size() == 0);
  CHECK(table.received_bytes() == 0);
  table.add(next.served.number(), 100);
  CHECK(table.size() == 1);
  table.remove(next.served.number());
  CHECK(table.size() == 0);
  table.sweep(200);
  CHECK(!next.is_ended());
}

TEST_CASE("a client has so many requests per second") {
  RateLimiter limiter(2);
  CHECK(limiter.admit("10.0.0.1", 5));
  CHECK(limiter.admit("10.0.0.1", 5));
  CHECK(!limiter.admit("10.0.0.1", 5.4));
  CHECK(limiter.admit("10.0.0.2", 5.4));
  CHECK(limiter.admit("10.0.0.1", 5.5));
  CHECK(!limiter.admit("10.0.0.1", 5.5));
  CHECK(limiter.clients() == 2);
  CHECK(limiter.admit("10.0.0.3", 60));
  CHECK(limiter.clients() == 1);

  RateLimiter seldom(0.1);
  CHECK(seldom.admit("a", 0));
  CHECK(!seldom.admit("a", 9.9));
  CHECK(seldom.admit("a", 10));

  RateLimiter none(0);
  for (int i = 0; i < 1000; ++i) REQUIRE(none.admit("a", 0));
  CHECK(none.clients() == 0);
}
