// See placement.hpp.
#include "cluster/rendezvous/placement.hpp"

#include <fmt/format.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/net/host_id.hpp"

namespace lockstep {

std::optional<std::size_t> Placement::node_served_by(std::uint64_t member) const {
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].server == member) return node;
  }
  return {};
}

std::vector<std::uint64_t> Placement::ranks_of_member(std::uint64_t member) const {
  std::vector<std::uint64_t> found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].member == member) found.push_back(rank);
  }
  return found;
}

std::vector<std::uint64_t> Placement::ranks_of_node(std::uint64_t node) const {
  std::vector<std::uint64_t> found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].node == node) found.push_back(rank);
  }
  return found;
}

Placement place_ranks(std::uint64_t generation, std::string nspace, std::span<const PeerInfo> members) {
  Placement placement{generation, std::move(nspace), {}, {}, 0, {}, 0};
  std::map<std::string, std::uint64_t> numbers;
  std::map<std::string_view, std::uint64_t> ranks_on_machine;
  std::vector<std::string_view> machines;  // indexed by node
  std::vector<std::uint64_t> ranks_on;
  std::set<std::string> names;
  std::set<std::string> addresses;
  for (const PeerInfo& who : members) {
    const auto [entry, is_new] = numbers.emplace(who.host, placement.nodes.size());
    if (is_new) {
      // MPI distinguishes nodes by name, but containers of one host may have the same name without sharing memory.
      std::string name = who.host_name;
      if (!names.insert(name).second) name += fmt::format("-{}", who.member);
      names.insert(name);
      placement.nodes.push_back({std::move(name), who.member, 0});
      machines.push_back(machine_id(who.host));
      ranks_on.push_back(0);
    }
    const std::uint64_t node = entry->second;
    for (std::uint64_t i = 0; i < who.ranks; ++i) placement.ranks.push_back({who.member, node, ranks_on[node]++});
    ranks_on_machine[machine_id(who.host)] += who.ranks;
    addresses.insert(who.addresses.begin(), who.addresses.end());
  }
  for (std::size_t node = 0; node < placement.nodes.size(); ++node) {
    placement.nodes[node].ranks_on_machine = ranks_on_machine[machines[node]];
  }
  placement.full_world_size = placement.ranks.size();
  placement.addresses.assign(addresses.begin(), addresses.end());
  return placement;
}

}  // namespace lockstep
