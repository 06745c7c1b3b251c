// See source_filter.hpp. The program is classic BPF: SKF_NET_OFF addresses the IP header of the packet.
#include "cluster/net/source_filter.hpp"

#include <lockstep/core/error.hpp>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {

namespace {

constexpr std::size_t max_networks = 256;  // of each family; the kernel's limit is about 600 of IPv4
constexpr unsigned bits_per_word = 32;
constexpr std::uint32_t four_source = 12;  // offsets in the IP headers
constexpr std::uint32_t six_source = 8;
constexpr std::uint32_t whole_packet = 0xFFFFFFFFU;

/// An address in host byte order; IPv4 uses the first word.
using Words = std::array<std::uint32_t, 4>;

/// The bits of word number `word` that a prefix of `length` bits covers.
std::uint32_t mask_of(unsigned length, unsigned word) {
  const unsigned begin = word * bits_per_word;
  if (length <= begin) return 0;
  const unsigned bits = std::min(length - begin, bits_per_word);
  return bits == bits_per_word ? ~0U : ~(~0U >> bits);
}

std::uint32_t at_network_header(std::uint32_t offset) { return static_cast<std::uint32_t>(SKF_NET_OFF) + offset; }

sock_filter statement(unsigned code, std::uint32_t value) { return BPF_STMT(static_cast<std::uint16_t>(code), value); }

/// Continues after the next `skipped` statements unless the accumulator is `value`.
sock_filter skip_unless(std::uint32_t value, std::size_t skipped) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, static_cast<std::uint8_t>(skipped));
}

/// Statements that accept a packet of any of these addresses, `words` words each, with a source at `offset`.
void add_family(std::vector<sock_filter>& program, const std::set<Words>& addresses, unsigned words,
                std::uint32_t offset) {
  unsigned length = words * bits_per_word;
  std::set<Words> networks = addresses;
  while (networks.size() > max_networks) {
    --length;
    std::set<Words> wider;
    for (Words network : networks) {
      for (unsigned word = 0; word < words; ++word) network[word] &= mask_of(length, word);
      wider.insert(network);
    }
    networks = std::move(wider);
  }
  for (const Words& network : networks) {
    std::vector<sock_filter> test;
    for (unsigned word = words; word > 0; --word) {  // from the end, because the number of statements to skip is known
      const std::uint32_t mask = mask_of(length, word - 1);
      if (mask == 0) continue;
      const std::size_t skipped = test.size() + 1;  // the rest of the test, and the acceptance
      std::vector<sock_filter> compare{statement(BPF_LD | BPF_W | BPF_ABS, at_network_header(offset + 4 * (word - 1)))};
      if (mask != ~0U) compare.push_back(statement(BPF_ALU | BPF_AND | BPF_K, mask));
      compare.push_back(skip_unless(network[word - 1], skipped));
      test.insert(test.begin(), compare.begin(), compare.end());
    }
    program.insert(program.end(), test.begin(), test.end());
    program.push_back(statement(BPF_RET | BPF_K, whole_packet));
  }
  program.push_back(statement(BPF_RET | BPF_K, 0));
}

}  // namespace

std::vector<sock_filter> make_source_filter(std::span<const std::string> addresses) {
  std::set<Words> four;
  std::set<Words> six;
  for (const std::string& address : addresses) {
    Words words{};
    if (inet_pton(AF_INET, address.c_str(), words.data()) == 1) {
      words[0] = ntohl(words[0]);
      four.insert(words);
    } else if (inet_pton(AF_INET6, address.c_str(), words.data()) == 1) {
      for (std::uint32_t& word : words) word = ntohl(word);
      six.insert(words);
    } else {
      throw DataError(fmt::format("'{}' is not an IP address", address));
    }
  }
  std::vector<sock_filter> of_four;
  add_family(of_four, four, 1, four_source);
  std::vector<sock_filter> program{
      statement(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_PROTOCOL)),
      // Conditional jumps reach 255 statements, unconditional ones reach all.
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 1, 0),
      statement(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(of_four.size()))};
  program.insert(program.end(), of_four.begin(), of_four.end());
  add_family(program, six, 4, six_source);
  return program;
}

int attach_filter(int socket, std::span<sock_filter> program) noexcept {
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0 ? 0 : errno;
}

std::vector<int> own_tcp_listeners() {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    int is_listening = 0;
    int protocol = 0;
    socklen_t size = sizeof is_listening;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) != 0 || is_listening == 0) continue;
    size = sizeof protocol;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP)
      found.push_back(descriptor);
  }
  return found;
}

std::optional<bool> has_filter(int socket) noexcept {
  socklen_t statements = 0;
  if (getsockopt(socket, SOL_SOCKET, SO_GET_FILTER, nullptr, &statements) != 0) return {};
  return statements > 0;
}

}  // namespace lockstep
