// See address.hpp. Checks the syntax of a host before any DNS lookup, so that a template's unfilled placeholder
// ("{{ name }}") is reported as an invalid name.
#include "cluster/net/address.hpp"

#include "cluster/net/quote.hpp"
#include "core/parse_number.hpp"

#include <lockstep/core/error.hpp>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

constexpr std::size_t max_name_length = 253;  // the limit of DNS

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_host_name(std::string_view text) {
  // RFC 1123 forbids underscores, but Docker Compose uses them in service names.
  return text.size() <= max_name_length && std::all_of(text.begin(), text.end(), [](char c) {
           return is_alphanumeric(c) || c == '-' || c == '.' || c == '_';
         });
}

/// Accepts a zone, as in fe80::1%eth0.
bool is_ipv6(std::string_view text) {
  const std::size_t percent = text.find('%');
  const std::string number(text.substr(0, percent));
  in6_addr ignored{};
  return text.size() <= max_name_length && inet_pton(AF_INET6, number.c_str(), &ignored) == 1 &&
         (percent == std::string_view::npos || (percent + 1 < text.size() && is_host_name(text.substr(percent + 1))));
}

std::uint16_t parse_port(std::string_view text) { return parse_number<std::uint16_t>(text).value_or(0); }

}  // namespace

std::string Address::to_string() const {
  const bool brackets = host.find(':') != std::string::npos;
  return fmt::format("{}:{}", brackets ? "[" + host + "]" : host, port);
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
  if (address.port == 0) refuse(", whose port " + quote(port) + " is not a number from 1 to 65535; write host:port");
  if (host.empty()) refuse(", which has no host; write host:port");
  if (in_brackets) {
    host = host.ends_with(']') ? host.substr(1, host.size() - 2) : std::string_view();
    if (!is_ipv6(host)) refuse(", whose brackets do not hold an IPv6 address; write it as [fd00::7]:5000");
  } else if (!is_host_name(host)) {
    refuse(", whose host " + quote(host) +
           " is not a valid host name (at most 253 letters, digits, dots, dashes and underscores); write host:port");
  }
  address.host = host;
  return address;
}

}  // namespace lockstep
