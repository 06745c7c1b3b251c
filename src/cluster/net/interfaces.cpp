// See interfaces.hpp.
#include "cluster/net/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t max_addresses = 48;  // they travel in a Hello, which may have 4 KiB

using InterfaceList = std::unique_ptr<ifaddrs, void (*)(ifaddrs*)>;

InterfaceList list_interfaces() {
  ifaddrs* first = nullptr;
  return {getifaddrs(&first) == 0 ? first : nullptr, &freeifaddrs};
}

/// The address as inet_ntop() writes it; "" for families other than IP.
std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const char* written = nullptr;
  if (address != nullptr && address->sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, address, sizeof four);
    written = inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
  } else if (address != nullptr && address->sa_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, address, sizeof six);
    written = inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
  }
  return written == nullptr ? std::string() : written;
}

/// The one way to write an address, without a zone; "" if it is none.
std::string canonical(const std::string& address) {
  const std::string number = address.substr(0, address.find('%'));
  std::array<char, sizeof(in6_addr)> binary{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, number.c_str(), binary.data()) == 1)
      return inet_ntop(family, binary.data(), text.data(), text.size());
  }
  return {};
}

}  // namespace

bool is_ip_address(const std::string& text) { return text.find('%') == std::string::npos && !canonical(text).empty(); }

std::string interface_with_address(const std::string& address) {
  const std::string wanted = canonical(address);
  if (wanted.empty()) return {};
  const InterfaceList interfaces = list_interfaces();
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    if (text_of(entry->ifa_addr) == wanted) return entry->ifa_name;
  }
  return {};
}

std::vector<std::string> addresses_of_host(const std::string& address) {
  std::vector<std::string> found;
  if (const std::string own = canonical(address); !own.empty()) found.push_back(own);
  const InterfaceList interfaces = list_interfaces();
  for (const ifaddrs* entry = interfaces.get(); entry != nullptr; entry = entry->ifa_next) {
    const std::string text = text_of(entry->ifa_addr);
    if (found.size() == max_addresses) break;
    if (text.empty() || (entry->ifa_flags & IFF_LOOPBACK) != 0 || text.starts_with("fe80:")) continue;
    if (std::ranges::find(found, text) == found.end()) found.push_back(text);
  }
  return found;
}

}  // namespace lockstep
