// Who is where in one generation's world: which launcher forks which ranks, which ranks share a host, and who serves
// PMIx for them. A plain value; all launchers of a generation have the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What a launcher tells of itself.
struct Introduction {
  std::uint64_t member = 0;       ///< its place among the cluster's tasks
  std::uint64_t incarnation = 0;  ///< differs from process to process
  std::string host;               ///< equal for launchers that share memory, see host_identity.hpp
  std::string host_name;          ///< for people, and for MPI
  std::string address;            ///< its own IP address on the way to the chief; empty for the chief itself
  std::uint64_t ranks = 1;        ///< trainers it forks

  friend bool operator==(const Introduction&, const Introduction&) = default;
};

/// A launcher forks at most so many.
constexpr std::uint64_t most_ranks_each = 4096;

struct Node {
  std::string host_name;               ///< no two nodes have the same
  std::uint64_t server = 0;            ///< the member that runs the PMIx server of all ranks here
  std::uint64_t ranks_on_machine = 0;  ///< the job's that share its cores: other containers' as well

  friend bool operator==(const Node&, const Node&) = default;
};

struct RankPlace {
  std::uint64_t member = 0;  ///< that forks it
  std::uint64_t node = 0;
  std::uint64_t local_rank = 0;  ///< among the node's

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

struct WorldMap {
  std::uint64_t generation = 0;
  std::string nspace;  ///< PMIx's name for this world, of no other generation and no other run
  std::vector<Node> nodes;
  std::vector<RankPlace> ranks;
  std::uint64_t replicas = 0;  ///< ranks that the job has when all its workers are there

  /// The node whose PMIx server this member runs, if it does.
  [[nodiscard]] std::optional<std::size_t> node_served_by(std::uint64_t member) const;
  [[nodiscard]] std::vector<std::uint64_t> ranks_of_member(std::uint64_t member) const;
  [[nodiscard]] std::vector<std::uint64_t> ranks_of_node(std::uint64_t node) const;

  /// The member that runs the PMIx server of a rank.
  [[nodiscard]] std::uint64_t server_of(std::uint64_t rank) const { return nodes.at(ranks.at(rank).node).server; }

  friend bool operator==(const WorldMap&, const WorldMap&) = default;
};

/// Ranks in the order of the members, so that the chief's first is rank 0; nodes in the order of their first ranks. Of
/// a job that has no other workers.
[[nodiscard]] WorldMap map_world(std::uint64_t generation, std::string nspace, std::span<const Introduction> members);

}  // namespace lockstep
