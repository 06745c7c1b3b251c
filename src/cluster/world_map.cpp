// See world_map.hpp.
#include "cluster/world_map.hpp"

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

#include "cluster/host_identity.hpp"

namespace lockstep {

std::optional<std::size_t> WorldMap::node_served_by(std::uint64_t member) const {
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].server == member) return node;
  }
  return {};
}

std::vector<std::uint64_t> WorldMap::ranks_of_member(std::uint64_t member) const {
  std::vector<std::uint64_t> found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].member == member) found.push_back(rank);
  }
  return found;
}

std::vector<std::uint64_t> WorldMap::ranks_of_node(std::uint64_t node) const {
  std::vector<std::uint64_t> found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].node == node) found.push_back(rank);
  }
  return found;
}

WorldMap map_world(std::uint64_t generation, std::string nspace, std::span<const Introduction> members) {
  WorldMap map{generation, std::move(nspace), {}, {}, 0};
  std::map<std::string, std::uint64_t> numbers;
  std::map<std::string_view, std::uint64_t> ranks_on_machine;
  std::vector<std::string_view> machines;  // by node
  std::vector<std::uint64_t> ranks_on;
  std::set<std::string> names;
  for (const Introduction& who : members) {
    const auto [entry, is_new] = numbers.emplace(who.host, map.nodes.size());
    if (is_new) {
      // Containers of one host may share its name, but no memory: MPI tells hosts apart by name.
      std::string name = who.host_name;
      if (!names.insert(name).second) name += "-" + std::to_string(who.member);
      names.insert(name);
      map.nodes.push_back({std::move(name), who.member, 0});
      machines.push_back(machine_of(who.host));
      ranks_on.push_back(0);
    }
    const std::uint64_t node = entry->second;
    for (std::uint64_t i = 0; i < who.ranks; ++i) map.ranks.push_back({who.member, node, ranks_on[node]++});
    ranks_on_machine[machine_of(who.host)] += who.ranks;
  }
  for (std::size_t node = 0; node < map.nodes.size(); ++node) {
    map.nodes[node].ranks_on_machine = ranks_on_machine[machines[node]];
  }
  map.replicas = map.ranks.size();
  return map;
}

}  // namespace lockstep
