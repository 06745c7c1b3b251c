// The main function of the tests on a GPU. Without a GPU it prints a message and exits with 77, which CTest reports as
// skipped.
#include "backend/make_backend.hpp"
#include "checked_model.hpp"
#include "support/catch_session.hpp"

#include <cstdlib>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  constexpr int skipped = 77;
  std::string why_not;
  if (!lockstep::make_cuda_backend({}, why_not)) {
    std::cout << "skipped: " << why_not << std::endl;
    return skipped;
  }
  setenv("LOCKSTEP_TEST_DEVICE", "cuda", 1);                          // NOLINT(concurrency-mt-unsafe): single-threaded
  const auto backend = lockstep::testing::make_backend_under_test();  // keeps the GPU's backend alive for all tests
  std::cout << backend->describe() << std::endl;
  return lockstep::testing::run_test_cases(argc, argv);
}
