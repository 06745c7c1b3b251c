// The main function of launch_test, which also serves as the `pmix-server` program that the tests start.
#include <cstdlib>
#include <string>

#include "cluster/pmix/pmix_server.hpp"
#include "support/catch_session.hpp"

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "pmix-server") lockstep::run_pmix_server(std::atoi(argv[2]));
  return lockstep::testing::run_test_cases(argc, argv);
}
