// The kernel drops what comes from an address that is not listed. 127.0.0.1 and 127.0.0.2 play two hosts.
#include "cluster/net/source_filter.hpp"

#include "cluster/net/interfaces.hpp"
#include "cluster/net/socket.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

/// A listener on all addresses of IPv4 or of both families, as MPI's.
Socket listener_with(const std::vector<std::string>& addresses) {
  Socket listener = listen_on(0);
  std::vector<sock_filter> program = make_source_filter(addresses);
  REQUIRE(attach_filter(listener.descriptor(), program) == 0);
  return listener;
}

/// Whether a connection from this IPv4 address is established within a moment.
bool can_connect(const std::string& from, std::uint16_t port) {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  sockaddr_in source{};
  source.sin_family = AF_INET;
  REQUIRE(inet_pton(AF_INET, from.c_str(), &source.sin_addr) == 1);
  REQUIRE(bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&source), sizeof source) == 0);
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(port);
  REQUIRE(inet_pton(AF_INET, "127.0.0.1", &target.sin_addr) == 1);
  (void)connect(socket.descriptor(), reinterpret_cast<sockaddr*>(&target), sizeof target);
  pollfd entry{socket.descriptor(), POLLOUT, 0};
  return poll(&entry, 1, 300) == 1 && finish_connect(socket) == 0;
}

}  // namespace

TEST_CASE("a filtered listener admits the listed addresses only") {
  const Socket listener = listener_with({"127.0.0.2", "10.0.0.7", "fd00::7"});
  const std::uint16_t port = port_of(listener);
  CHECK(can_connect("127.0.0.2", port));
  CHECK_FALSE(can_connect("127.0.0.1", port));
  CHECK_FALSE(can_connect("127.0.0.3", port));
  CHECK(has_filter(listener.descriptor()).value_or(true));
  std::vector<sock_filter> nobody = make_source_filter({});
  REQUIRE(attach_filter(listener.descriptor(), nobody) == 0);
  CHECK_FALSE(can_connect("127.0.0.2", port));
}

TEST_CASE("thousands of addresses fit, as prefixes") {
  std::vector<std::string> addresses;
  for (int host = 0; host < 5000; ++host) addresses.push_back(fmt::format("127.{}.{}.1", 1 + host / 250, host % 250));
  for (int host = 0; host < 500; ++host) addresses.push_back(fmt::format("fd00::{:x}:1", host));
  const Socket listener = listener_with(addresses);
  const std::uint16_t port = port_of(listener);
  for (const char* admitted : {"127.1.0.1", "127.9.77.1", "127.20.249.1"}) CHECK(can_connect(admitted, port));
  CHECK_FALSE(can_connect("127.0.0.1", port));
  CHECK_FALSE(can_connect("127.128.0.1", port));
}

TEST_CASE("prefixes are no shorter than they must be") {
  std::vector<std::string> addresses;  // half as many pairs fit
  for (int host = 0; host <= 300; ++host) addresses.push_back(fmt::format("127.2.{}.{}", host / 256, host % 256));
  const Socket listener = listener_with(addresses);
  const std::uint16_t port = port_of(listener);
  CHECK(can_connect("127.2.1.44", port));  // the last of them
  CHECK_FALSE(can_connect("127.2.1.46", port));
}

TEST_CASE("an address that is none is refused") {
  CHECK_THROWS_AS(make_source_filter(std::vector<std::string>{"pod-1"}), DataError);
}

TEST_CASE("own listeners are found, connections are not") {
  const Socket listener = listen_on(0);
  const std::vector<int> found = own_tcp_listeners();
  CHECK(std::count(found.begin(), found.end(), listener.descriptor()) == 1);
  CHECK_FALSE(has_filter(listener.descriptor()).value_or(false));
}

TEST_CASE("an address maps to its network interface") {
  REQUIRE(interface_with_address("127.0.0.1") == "lo");
  for (const char* address : {"192.0.2.1", "worker-0", "", "127.0.0.1:80", "2001:db8::1"}) {
    REQUIRE(interface_with_address(address).empty());
  }
}

TEST_CASE("a host tells the address that others see first") {
  CHECK(addresses_of_host("192.0.2.1").front() == "192.0.2.1");
  CHECK(addresses_of_host("127.0.0.1").front() == "127.0.0.1");
  CHECK(addresses_of_host("fe80::0:1%eth0").front() == "fe80::1");
  for (const std::string& address : addresses_of_host("")) {
    CHECK(is_ip_address(address));
    CHECK_FALSE(address.starts_with("127."));
  }
  for (const char* text : {"", "worker-0", "10.0.0.7:80", "fe80::1%eth0"}) CHECK_FALSE(is_ip_address(text));
}
