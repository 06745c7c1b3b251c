// The placement of one generation: which launcher forks which ranks, which ranks share a node, and which launcher runs
// the PMIx server of each node. All launchers of a generation hold the same value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A launcher's description of itself.
struct PeerInfo {
  std::uint64_t member = 0;                 ///< its index among the cluster's tasks
  std::uint64_t incarnation = 0;            ///< random, unique per process
  std::string host;                         ///< host_id(): equal for launchers that can share memory
  std::string host_name;                    ///< for messages and for MPI
  std::string address;                      ///< local IP address of its connection to the chief; empty for the chief
  std::uint64_t ranks = 1;                  ///< number of trainers it forks
  std::vector<std::string> addresses = {};  ///< from which its host's connections may come
  std::uint64_t probe_port = 0;             ///< other launchers may connect to it to prove the link; 0: none

  friend bool operator==(const PeerInfo&, const PeerInfo&) = default;
};

/// The largest number of trainers per launcher.
constexpr std::uint64_t max_ranks_per_worker = 4096;

struct Node {
  std::string host_name;               ///< unique among the nodes
  std::uint64_t server = 0;            ///< the member that runs the PMIx server of this node
  std::uint64_t ranks_on_machine = 0;  ///< ranks of this job on the same machine, including those in other containers

  friend bool operator==(const Node&, const Node&) = default;
};

struct RankPlacement {
  std::uint64_t member = 0;  ///< the launcher that forks it
  std::uint64_t node = 0;
  std::uint64_t local_rank = 0;  ///< within the node

  friend bool operator==(const RankPlacement&, const RankPlacement&) = default;
};

struct Placement {
  std::uint64_t generation = 0;
  std::string nspace;  ///< the PMIx namespace, unique per run and generation
  std::vector<Node> nodes;
  std::vector<RankPlacement> ranks;
  std::uint64_t full_world_size = 0;        ///< number of ranks when all workers take part
  std::vector<std::string> addresses = {};  ///< of all hosts: MPI admits connections from them only
  std::uint64_t master_port = 0;  ///< a free port on the host of rank 0, for programs with a rendezvous of their own

  /// The node whose PMIx server this member runs; nullopt if it runs none.
  [[nodiscard]] std::optional<std::size_t> node_served_by(std::uint64_t member) const;
  [[nodiscard]] std::vector<std::uint64_t> ranks_of_member(std::uint64_t member) const;
  [[nodiscard]] std::vector<std::uint64_t> ranks_of_node(std::uint64_t node) const;

  /// The member that runs the PMIx server of a rank.
  [[nodiscard]] std::uint64_t server_of(std::uint64_t rank) const { return nodes.at(ranks.at(rank).node).server; }

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Numbers ranks in the order of `members`, so that the chief's first trainer is rank 0, and nodes in the order of
/// their first ranks. Sets full_world_size as if `members` were all workers of the job.
[[nodiscard]] Placement place_ranks(std::uint64_t generation, std::string nspace, std::span<const PeerInfo> members);

}  // namespace lockstep
