// What can be said of a world without a launcher.
#include "cluster/world.hpp"

#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("a process nobody launched is a world of one without MPI") {
  const World world;
  REQUIRE(world.rank() == 0);
  REQUIRE(world.size() == 1);
  REQUIRE(world.is_chief());
  REQUIRE_FALSE(world.uses_mpi());
  REQUIRE(world.hosts() == 1);
  REQUIRE(world.host_of_rank() == std::vector<int>{0});
}

TEST_CASE("test hosts are numbered in the order of their first ranks") {
  REQUIRE(parse_test_hosts("0", 1) == std::vector<int>{0});
  REQUIRE(parse_test_hosts("0,0,1", 3) == std::vector<int>{0, 0, 1});
  REQUIRE(parse_test_hosts("0,1,0", 3) == std::vector<int>{0, 1, 0});
  REQUIRE(parse_test_hosts("7,3,7,100", 4) == std::vector<int>{0, 1, 0, 2});
}

TEST_CASE("test hosts that do not fit the world are refused") {
  for (const char* wrong : {"", "0", "0,1", "0,1,2,3", "0,1,", ",0,1", "0,,1", "0,a,1", "0,-1,1", "0,-0,1", "0, 1,1",
                            "0,1,1 ", "0;1;1", "0,1,99999999999"}) {
    CAPTURE(wrong);
    REQUIRE_THROWS_AS(parse_test_hosts(wrong, 3), UsageError);
  }
}
