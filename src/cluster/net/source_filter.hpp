// A socket filter that admits packets from a list of addresses and drops all others in the kernel, as if the port were
// behind a firewall. It needs no privilege. Connections accepted from a filtered listener inherit the filter.
#pragma once

#include <linux/filter.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The program of the filter for numeric IPv4 and IPv6 addresses. The kernel bounds its length, so more than 256
/// addresses of a family are replaced by as few prefixes of one length as needed. Without addresses it drops
/// everything. Throws DataError for a text that is no address.
[[nodiscard]] std::vector<sock_filter> make_source_filter(std::span<const std::string> addresses);

/// Replaces the filter of a socket. Returns 0, or the errno.
[[nodiscard]] int attach_filter(int socket, std::span<sock_filter> program) noexcept;

/// The listening TCP sockets of this process.
[[nodiscard]] std::vector<int> own_tcp_listeners();

/// Whether the socket has a filter; nullopt if the kernel does not say.
[[nodiscard]] std::optional<bool> has_filter(int socket) noexcept;

}  // namespace lockstep
