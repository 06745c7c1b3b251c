// The main function of launch_test, which is also the program that its PMIx servers run.
#if LOCKSTEP_CATCH2_V3
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <cstdlib>
#include <string>

#include "cluster/pmix_server.hpp"

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "pmix-server") lockstep::run_pmix_server(std::atoi(argv[2]));
  return Catch::Session().run(argc, argv);
}
