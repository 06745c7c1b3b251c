// Name resolution and probes: all ways in which a peer may be unreachable, on the loopback interface.
#include "cluster/net/probe.hpp"

#include "cluster/net/resolve.hpp"
#include "cluster/net/socket.hpp"
#include "core/clock.hpp"
#include "support/catch.hpp"
#include "support/sockets.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// Reserves a loopback port without listening on it.
Socket bind_without_listening() {
  Socket closed(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in self{};
  self.sin_family = AF_INET;
  self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(closed.descriptor(), reinterpret_cast<const sockaddr*>(&self), sizeof self) == 0);
  return closed;
}

/// A listener that never accepts, with enough connections to fill its queue.
struct SilentListener {
  Socket listener = listen_on(0, 0);
  std::vector<ConnectAttempt> queue;

  SilentListener() {
    const Endpoint endpoint = resolve(Address{"127.0.0.1", port_of(listener)}, Deadline::after(1)).endpoints.at(0);
    while (queue.size() < 20 && (queue.empty() || queue.back().error == 0)) {
      queue.push_back(connect_to(endpoint, Deadline::after(0.3)));
    }
  }
};

bool is_missing_name(Reachability reach) {
  return reach == Reachability::unknown_name ||
         reach == Reachability::no_name_service;  // no_name_service on machines without a network
}

}  // namespace

TEST_CASE("IP addresses and names resolve in order") {
  const std::vector<Address> addresses{{"127.0.0.1", 1}, {"localhost", 2}, {"::1", 3}, {"does-not-exist.invalid", 4}};
  const std::vector<Resolution> found = resolve(addresses, Deadline::after(20));
  REQUIRE(found.size() == 4);
  CHECK(found[0].endpoints.at(0).to_string() == "127.0.0.1:1");
  REQUIRE(found[1].state == NameState::found);
  const std::string self = found[1].endpoints.at(0).to_string();
  CHECK((self == "127.0.0.1:2" || self == "[::1]:2"));
  CHECK(found[2].endpoints.at(0).to_string() == "[::1]:3");
  CHECK(found[3].state != NameState::found);
  CHECK(found[3].endpoints.empty());
  CHECK_FALSE(found[3].problem.empty());
}

TEST_CASE("a lookup ends at its deadline and IP addresses need none") {
  const Resolution late = resolve(Address{"does-not-exist.invalid", 1}, Deadline::after(0));
  CHECK(late.state == NameState::no_answer);
  CHECK_FALSE(late.problem.empty());
  CHECK(resolve(Address{"127.0.0.1", 1}, Deadline::after(0)).state == NameState::found);
  CHECK(resolve(std::vector<Address>(), Deadline::after(0)).empty());
  // More names than resolver threads.
  const std::vector<Address> many(200, Address{"localhost", 7});
  for (const Resolution& found : resolve(many, Deadline::after(30))) CHECK(found.state == NameState::found);
}

TEST_CASE("each peer is reported with the outcome of its probe") {
  const Socket listener = listen_on(0);
  const Socket closed = bind_without_listening();
  const SilentListener silent;
  REQUIRE(silent.queue.back().error != 0);
  const std::vector<Address> peers{
      {"127.0.0.1", port_of(listener)},        {"127.0.0.1", port_of(closed)},
      {"127.0.0.1", port_of(silent.listener)}, {"127.255.255.255", 5000},  // a broadcast address
      {"does-not-exist.invalid", 5000},        {"localhost", port_of(listener)}};
  const double began = monotonic_seconds();
  const std::vector<Probe> found = probe(peers, 1.5);
  const double seconds = monotonic_seconds() - began;
  REQUIRE(found.size() == peers.size());
  CHECK(found[0].reach == Reachability::answers);
  CHECK(found[0].endpoint == peers[0].to_string());
  CHECK(found[0].problem.empty());
  CHECK(found[1].reach == Reachability::refused);
  CHECK(found[2].reach == Reachability::no_answer);
  CHECK(found[2].seconds >= 1.5);
  CHECK(found[3].reach == Reachability::unreachable);
  CHECK_FALSE(found[3].problem.empty());
  CHECK(is_missing_name(found[4].reach));
  CHECK(found[4].endpoint.empty());
  CHECK(found[5].reach == Reachability::answers);
  CHECK(seconds >= 1.5);
  CHECK(seconds < 6);  // all run concurrently: at most 1.5 s for names and as long for connections

  // A probe closes its connection.
  REQUIRE(wait_for(listener, POLLIN, Deadline::after(5)));
  const std::optional<Accepted> accepted = accept_one(listener);
  REQUIRE(accepted.has_value());
  std::vector<std::byte> nothing(1);
  CHECK(receive_all(accepted->socket, nothing, Deadline::after(5)).end == TransferEnd::closed);
}

TEST_CASE("more peers than concurrent connections are probed") {
  const Socket listener = listen_on(0);
  const Socket closed = bind_without_listening();
  std::vector<Address> peers;
  for (std::size_t i = 0; i < 600; ++i) peers.push_back({"127.0.0.1", port_of(i % 3 == 0 ? listener : closed)});
  const std::vector<Probe> found = probe(peers, 20);
  REQUIRE(found.size() == peers.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    wrong += found[i].reach == (i % 3 == 0 ? Reachability::answers : Reachability::refused) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(probe({}, 1).empty());
}
