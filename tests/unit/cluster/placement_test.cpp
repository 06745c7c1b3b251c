// The placement of ranks, from what the launchers report about themselves.
#include "cluster/rendezvous/placement.hpp"

#include <string>
#include <vector>

#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("local ranks are counted per machine across containers") {
  const std::vector<PeerInfo> members{{0, 1, "boot-1 24", "pod-a", "", 2},
                                      {1, 2, "boot-1 25", "pod-b", "", 1},
                                      {2, 3, "boot-2 24", "pod-c", "", 5},
                                      {3, 4, "boot-1 24", "pod-a", "", 1}};
  const Placement map = place_ranks(1, "space", members);
  REQUIRE(map.nodes.size() == 3);
  CHECK(map.nodes[0].ranks_on_machine == 4);
  CHECK(map.nodes[1].ranks_on_machine == 4);
  CHECK(map.nodes[2].ranks_on_machine == 5);
  CHECK(map.ranks_of_node(0).size() == 3);
  CHECK(map.ranks_of_node(1).size() == 1);
}

TEST_CASE("a placement lists the addresses of all hosts once") {
  const std::vector<PeerInfo> members{{0, 1, "a", "pod-a", "", 1, {"10.0.0.1"}},
                                      {1, 2, "b", "pod-b", "", 1, {"10.0.0.2", "10.1.0.2", "10.0.0.1"}}};
  CHECK(place_ranks(1, "space", members).addresses == std::vector<std::string>{"10.0.0.1", "10.0.0.2", "10.1.0.2"});
}
