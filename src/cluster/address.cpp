// See address.hpp. A host is checked as far as it can be without asking anybody: what a template left unfilled
// ("{{ name }}") shall not become the name service's question.
#include "cluster/address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "cluster/json_text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

namespace {

constexpr std::size_t longest_name = 253;  // of the name service

bool is_plain(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_host_name(std::string_view text) {
  // The underscore is no host name's by the book, but Docker's composed services have it.
  return text.size() <= longest_name &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_plain(c) || c == '-' || c == '.' || c == '_'; });
}

/// Also with a zone, as fe80::1%eth0.
bool is_ipv6(std::string_view text) {
  const std::size_t percent = text.find('%');
  const std::string number(text.substr(0, percent));
  in6_addr ignored{};
  return text.size() <= longest_name && inet_pton(AF_INET6, number.c_str(), &ignored) == 1 &&
         (percent == std::string_view::npos || (percent + 1 < text.size() && is_host_name(text.substr(percent + 1))));
}

std::uint16_t parse_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && port > 0 && port <= std::numeric_limits<std::uint16_t>::max() ? static_cast<std::uint16_t>(port) : 0;
}

}  // namespace

std::string Address::to_string() const {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Address parse_address(std::string_view text, const std::string& where) {
  const auto refuse = [&](const std::string& what) { throw UsageError(where + " is " + quote(text) + what); };
  const std::size_t colon = text.rfind(':');
  const bool in_brackets = text.starts_with('[');
  if (colon == std::string_view::npos || (in_brackets && text.ends_with(']'))) {
    refuse(", which has no port; write host:port");
  }
  const std::string_view port = text.substr(colon + 1);
  std::string_view host = text.substr(0, colon);
  Address address{"", parse_port(port)};
  if (!in_brackets && (is_ipv6(host) || is_ipv6(text))) {
    refuse(", an IPv6 address without brackets; write it as [fd00::7]:5000");
  }
  if (address.port == 0) refuse(", whose port " + quote(port) + " is no number from 1 to 65535; write host:port");
  if (host.empty()) refuse(", which has no host; write host:port");
  if (in_brackets) {
    host = host.ends_with(']') ? host.substr(1, host.size() - 2) : std::string_view();
    if (!is_ipv6(host)) refuse(", where the brackets hold no IPv6 address; write it as [fd00::7]:5000");
  } else if (!is_host_name(host)) {
    refuse(", whose host " + quote(host) +
           " cannot be one: only letters, digits, dots, dashes and underscores, 253 in all; write host:port");
  }
  address.host = host;
  return address;
}

}  // namespace lockstep
