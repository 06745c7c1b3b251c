// See exported_variables.hpp.
#include "cluster/launcher/exported_variables.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "cluster/net/address.hpp"

namespace lockstep {

Environment world_variables(const Placement& placement, std::uint64_t rank, const std::string& master_address) {
  const RankPlacement& own = placement.ranks.at(rank);
  const std::string number = std::to_string(rank);
  const std::string ranks = std::to_string(placement.ranks.size());
  const std::string master = Address{master_address, static_cast<std::uint16_t>(placement.master_port)}.to_string();
  return {
      {"RANK", number},
      {"WORLD_SIZE", ranks},
      {"LOCAL_RANK", std::to_string(own.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(placement.ranks_of_node(own.node).size())},
      {"GROUP_RANK", std::to_string(own.node)},
      {"MASTER_ADDR", master_address},
      {"MASTER_PORT", std::to_string(placement.master_port)},
      {"KERAS_DISTRIBUTION_JOB_ADDRESSES", master},
      {"KERAS_DISTRIBUTION_NUM_PROCESSES", ranks},
      {"KERAS_DISTRIBUTION_PROCESS_ID", number},
      {"JAX_COORDINATOR_ADDRESS", master},
      {"JAX_NUM_PROCESSES", ranks},
      {"JAX_PROCESS_ID", number},
  };
}

Environment thread_variables(const Placement& placement, std::uint64_t rank, double cores) {
  const auto ranks = static_cast<double>(placement.nodes.at(placement.ranks.at(rank).node).ranks_on_machine);
  if (ranks <= 1) return {};
  const std::string threads = std::to_string(std::max(1, static_cast<int>(cores / ranks)));
  return {
      {"OMP_NUM_THREADS", threads},         // PyTorch and oneDNN
      {"TF_NUM_INTRAOP_THREADS", threads},  // TensorFlow
      {"PJRT_NPROC", threads},              // JAX
  };
}

}  // namespace lockstep
