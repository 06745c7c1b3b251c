// The variables that programs of other frameworks read.
#include "cluster/launcher/exported_variables.hpp"
#include "cluster/net/socket.hpp"
#include "support/catch.hpp"

#include <cstdint>
#include <vector>

using namespace lockstep;

namespace {

/// Two hosts; the first has ranks 0 and 1.
Placement make_placement() {
  const std::vector<PeerInfo> members{{0, 1, "machine-a shm", "a", "", 2}, {1, 2, "machine-b shm", "b", "10.0.0.2", 1}};
  Placement placement = place_ranks(1, "space", members);
  placement.master_port = 4321;
  return placement;
}

}  // namespace

TEST_CASE("each rank is told its place in the world and how to reach rank 0") {
  const Placement placement = make_placement();
  const Environment second = world_variables(placement, 1, "fd00::7");
  CHECK(second.at("RANK") == "1");
  CHECK(second.at("LOCAL_RANK") == "1");
  CHECK(second.at("WORLD_SIZE") == "3");
  CHECK(second.at("LOCAL_WORLD_SIZE") == "2");
  CHECK(second.at("MASTER_ADDR") == "fd00::7");
  CHECK(second.at("MASTER_PORT") == "4321");
  CHECK(second.at("KERAS_DISTRIBUTION_JOB_ADDRESSES") == "[fd00::7]:4321");
  CHECK(second.at("KERAS_DISTRIBUTION_NUM_PROCESSES") == "3");
  CHECK(second.at("KERAS_DISTRIBUTION_PROCESS_ID") == "1");
  CHECK(second.at("JAX_COORDINATOR_ADDRESS") == "[fd00::7]:4321");
  const Environment third = world_variables(placement, 2, "a");
  CHECK(third.at("LOCAL_RANK") == "0");
  CHECK(third.at("GROUP_RANK") == "1");
}

TEST_CASE("ranks of a machine divide its cores, and a rank alone keeps its framework's default") {
  const Placement placement = make_placement();
  CHECK(thread_variables(placement, 0, 5).at("OMP_NUM_THREADS") == "2");
  CHECK(thread_variables(placement, 1, 0.5).at("PJRT_NPROC") == "1");
  CHECK(thread_variables(placement, 2, 8).empty());
}

TEST_CASE("a free port can be listened on") {
  const std::uint16_t port = free_port();
  CHECK(port > 0);
  CHECK(listen_on(port));
}
