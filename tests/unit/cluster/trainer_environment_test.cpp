// The environment of trainers, which configures Open MPI, and session directories.
#include "cluster/pmix/trainer_environment.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "cluster/pmix/session_directories.hpp"
#include "support/catch.hpp"

using namespace lockstep;

namespace {

PmixJob two_of_three_here() {
  return {.nspace = "job",
          .node_of_rank = {0, 0, 1},
          .served = {0, 1},
          .session_directory = "/tmp/lockstep-world-x",
          .memory_directory = "/dev/shm/lockstep-world-x",
          .ranks_on_machine = 0,
          .tcp_address = "",
          .first_tcp_port = 0,
          .tcp_ports = 0};
}

constexpr HostResources roomy{8, 8, true};
const Environment usual{{"HOME", "/"}, {"TMPDIR", "/tmp"}, {"PATH", "/bin"}};

/// The usual environment with this user's directories.
Environment own_environment() {
  Environment own = usual;
  own["HOME"] = std::filesystem::temp_directory_path().string();
  return own;
}

bool yields(const PmixJob& job, const HostResources& place) {
  return trainer_environment(job, place, own_environment()).contains("OMPI_MCA_mpi_yield_when_idle");
}

}  // namespace

TEST_CASE("trainers get the variables they need and no others") {
  const Environment added = trainer_environment(two_of_three_here(), roomy, own_environment());
  const Environment expected{{"JSM_JSRUN_PORT", "0"},
                             {"PMIX_MCA_gds", "hash"},
                             {"OMPI_MCA_btl_vader_backing_directory", "/dev/shm/lockstep-world-x"},
                             {"OMPI_MCA_btl_sm_backing_directory", "/dev/shm/lockstep-world-x"},
                             {"OMPI_MCA_osc_sm_backing_directory", "/dev/shm/lockstep-world-x"},
                             {"OMPI_MCA_osc_rdma_backing_directory", "/dev/shm/lockstep-world-x"}};
  REQUIRE(added == expected);
}

TEST_CASE("waiting ranks yield if ranks may outnumber cores") {
  PmixJob job = two_of_three_here();
  REQUIRE_FALSE(yields(job, {2, 2, true}));
  REQUIRE(yields(job, {1, 8, true}));
  REQUIRE(yields(job, {1.5, 8, true}));
  job.ranks_on_machine = 9;  // including other containers
  REQUIRE(yields(job, {8, 8, true}));
  REQUIRE_FALSE(yields(job, {8, 9, true}));
  job = two_of_three_here();
  job.served = {2};  // the only rank on its node
  REQUIRE_FALSE(yields(job, {1, 1, true}));
  REQUIRE(yields(job, {0.5, 1, true}));
}

TEST_CASE("containers on one machine divide its cores") {
  const auto threads = [](const PmixJob& job, const HostResources& place) {
    return value_of(trainer_environment(job, place, own_environment()), "OMP_NUM_THREADS");
  };
  PmixJob job = two_of_three_here();
  job.ranks_on_machine = 2;
  REQUIRE(threads(job, {8, 8, true}).empty());  // the trainers divide the cores themselves
  job.ranks_on_machine = 4;
  REQUIRE(threads(job, {16, 16, true}) == "4");
  REQUIRE(threads(job, {4, 16, true}) == "2");  // a container's limit
  REQUIRE(threads(job, {2, 2, true}) == "1");
  Environment own = own_environment();
  own["OMP_NUM_THREADS"] = "3";  // the user's value takes precedence
  REQUIRE_FALSE(trainer_environment(job, roomy, own).contains("OMP_NUM_THREADS"));
}

TEST_CASE("Open MPI is configured for containers, networks and ports") {
  PmixJob job = two_of_three_here();
  job.tcp_address = "127.0.0.1";
  job.first_tcp_port = 40000;
  job.tcp_ports = 64;
  const Environment added = trainer_environment(job, {8, 8, false}, own_environment());
  REQUIRE(value_of(added, "OMPI_MCA_btl_vader_single_copy_mechanism") == "none");
  REQUIRE(value_of(added, "OMPI_MCA_smsc") == "^cma");
  REQUIRE(value_of(added, "OMPI_MCA_btl_tcp_if_include") == "lo");
  REQUIRE(!added.contains("OMPI_MCA_btl"));
  REQUIRE(value_of(added, "OMPI_MCA_btl_tcp_port_min_v4") == "40000");
  REQUIRE(value_of(added, "OMPI_MCA_btl_tcp_port_range_v6") == "64");

  job.tcp_address = "192.0.2.1";  // an address of another host
  REQUIRE_FALSE(trainer_environment(job, roomy, own_environment()).contains("OMPI_MCA_btl_tcp_if_include"));

  Environment own = own_environment();
  own["OMPI_MCA_btl_tcp_if_include"] = "eth1";  // the user's value takes precedence
  REQUIRE_FALSE(trainer_environment(job, roomy, own).contains("OMPI_MCA_btl_tcp_if_include"));
}

TEST_CASE("trainers without HOME or TMPDIR get one") {
  Environment own{{"TMPDIR", "/nowhere"}};
  Environment added = trainer_environment(two_of_three_here(), roomy, own);
  REQUIRE(value_of(added, "HOME") == "/tmp/lockstep-world-x");
  REQUIRE(value_of(added, "TMPDIR") == "/tmp/lockstep-world-x");
  own = {{"HOME", "/nowhere"}};
  REQUIRE(trainer_environment(two_of_three_here(), roomy, own).contains("HOME"));
}

TEST_CASE("variables of other launchers are removed") {
  const Environment own{{"PATH", "/bin"},
                        {"PMIX_RANK", "5"},
                        {"PMI_SIZE", "9"},
                        {"OMPI_COMM_WORLD_SIZE", "9"},
                        {"OMPI_MCA_btl", "^openib"},
                        {"PMIX_MCA_gds", "shmem2"}};
  const Environment joined = join_environments(own, {{"PMIX_NAMESPACE", "job"}, {"PMIX_MCA_gds", "hash"}});
  const Environment expected{
      {"PATH", "/bin"}, {"OMPI_MCA_btl", "^openib"}, {"PMIX_MCA_gds", "hash"}, {"PMIX_NAMESPACE", "job"}};
  REQUIRE(joined == expected);
}

TEST_CASE("the container environment is detected") {
  const HostResources place = HostResources::detect();
  REQUIRE(place.cores > 0);
  REQUIRE(place.machine_cores >= 1);
  REQUIRE(place.single_copy == can_read_memory_of_siblings());  // must also leave no process behind
}

TEST_CASE("session directories are private and removed recursively") {
  std::string files;
  std::string memory;
  {
    const SessionDirectories directories;
    files = directories.files();
    memory = directories.memory();
    struct stat found {};
    REQUIRE(stat(files.c_str(), &found) == 0);
    REQUIRE((found.st_mode & 0777U) == 0700U);
    std::filesystem::create_directories(files + "/0/deep");
    std::ofstream(files + "/0/deep/file") << "left";
    const SessionDirectories others;
    REQUIRE(others.files() != files);
  }
  REQUIRE_FALSE(std::filesystem::exists(files));
  if (!memory.empty()) REQUIRE_FALSE(std::filesystem::exists(memory));

  const auto foreign = std::filesystem::temp_directory_path() / ("not-ours-" + std::to_string(getpid()));
  std::filesystem::create_directory(foreign);
  remove_session_directory(foreign.string());
  remove_session_directory("");
  REQUIRE(std::filesystem::exists(foreign));
  std::filesystem::remove(foreign);
}

TEST_CASE("ranks of a single host use no network") {
  PmixJob job = two_of_three_here();
  for (int& node : job.node_of_rank) node = 0;
  job.tcp_address = "127.0.0.1";
  Environment own = own_environment();
  const Environment added = trainer_environment(job, roomy, own);
  REQUIRE(value_of(added, "OMPI_MCA_btl") == "^tcp,ofi");
  REQUIRE(!added.contains("OMPI_MCA_btl_tcp_if_include"));
  own["OMPI_MCA_btl"] = "tcp,self";  // the user's value takes precedence
  REQUIRE(!trainer_environment(job, roomy, own).contains("OMPI_MCA_btl"));
}

TEST_CASE("a peer may set only what MPI reads") {
  for (const char* name :
       {"PMIX_RANK", "PMIX_MCA_gds", "OMPI_MCA_btl", "JSM_JSRUN_PORT", "OMP_NUM_THREADS", "TMPDIR"}) {
    CHECK(may_be_sent(name));
  }
  for (const char* name :
       {"LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "LOCKSTEP_JOB_ID", "GCONV_PATH", ""}) {
    CHECK(!may_be_sent(name));
  }
  const Environment added = trainer_environment(two_of_three_here(), {1, 1, false}, {});
  for (const auto& [name, value] : added) CHECK(may_be_sent(name));
}
