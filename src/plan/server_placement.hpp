// How the variables of a plan are placed on parameter servers: in turn, by bytes, or cut into parts, as TensorFlow's
// partitioners do. The placement changes which server updates which elements, and never their bits.
#pragma once

#include "collective/server_layout.hpp"
#include "plan/plan.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep {

struct ServerPlacement {
  enum class Kind { round_robin, greedy, fixed_shards, min_size, max_size };
  Kind kind = Kind::round_robin;
  std::size_t amount = 0;  ///< of fixed_shards the number, of min_size and max_size the bytes

  friend bool operator==(const ServerPlacement&, const ServerPlacement&) = default;
};

/// "round-robin", "greedy", "partitioned" (min-size of 256 KiB, as TensorFlow proposes), "fixed-shards:N",
/// "min-size:BYTES" or "max-size:BYTES". Throws UsageError for anything else; `where` names the option.
[[nodiscard]] ServerPlacement parse_server_placement(const std::string& text, const std::string& where);

/// The shards of all servers: each element of the plan's buckets is in one of them. Shards begin on a cache line, lie
/// within a bucket, and hold all of a constrained weight.
[[nodiscard]] std::vector<ServerShard> place_on_servers(const Plan& plan, std::size_t servers,
                                                        const ServerPlacement& placement);

/// The plan of a server: one Update for each of its shards, which take the place of the buckets, and no computation.
[[nodiscard]] Plan server_plan(Plan plan, std::vector<Range> own_shards);

/// For a person: which server holds what, a line for each variable and server.
[[nodiscard]] std::string describe_servers(const Plan& plan, const std::vector<ServerShard>& shards,
                                           std::size_t servers);

}  // namespace lockstep
