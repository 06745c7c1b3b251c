#include "core/environment.hpp"

#include <cstdlib>

#include "core/log.hpp"
#include "support/catch.hpp"

using namespace lockstep;

TEST_CASE("the environment is read completely", "[environment]") {
  REQUIRE(::setenv("LOCKSTEP_ENVIRONMENT_TEST", "a=b c", 1) == 0);
  const Environment environment = current_environment();
  CHECK(value_of(environment, "LOCKSTEP_ENVIRONMENT_TEST") == "a=b c");
  CHECK(value_of(environment, "PATH") == std::getenv("PATH"));
  CHECK(value_of(environment, "LOCKSTEP_NO_SUCH_VARIABLE").empty());
  ::unsetenv("LOCKSTEP_ENVIRONMENT_TEST");
}

TEST_CASE("the rank of a launcher is known before MPI_Init", "[environment]") {
  CHECK(launcher_rank({}) == 0);
  CHECK(launcher_rank({{"OMPI_COMM_WORLD_RANK", "3"}}) == 3);
  CHECK(launcher_rank({{"PMIX_RANK", "2"}}) == 2);
  CHECK(launcher_rank({{"SLURM_PROCID", "12"}}) == 12);
  SECTION("Open MPI's variables take precedence over Slurm's") {
    CHECK(launcher_rank({{"OMPI_COMM_WORLD_RANK", "1"}, {"SLURM_PROCID", "0"}}) == 1);
    CHECK(launcher_rank({{"OMPI_COMM_WORLD_RANK", "0"}, {"SLURM_PROCID", "5"}}) == 0);
  }
  SECTION("non-numeric variables are ignored") {
    CHECK(launcher_rank({{"OMPI_COMM_WORLD_RANK", "x"}, {"PMIX_RANK", "4"}}) == 4);
    CHECK(launcher_rank({{"OMPI_COMM_WORLD_RANK", "1x"}}) == 0);
    CHECK(launcher_rank({{"OMPI_COMM_WORLD_RANK", "-1"}}) == 0);
    CHECK(launcher_rank({{"OMPI_COMM_WORLD_RANK", "99999999999"}}) == 0);
  }
}

TEST_CASE("log lines name the rank unless it is the chief", "[log]") {
  CHECK(log_line(0, "", "hello") == "hello\n");
  CHECK(log_line(0, "warning", "slow") == "warning: slow\n");
  CHECK(log_line(3, "error", "lost") == "[rank 3] error: lost\n");
}
