// The main function of the tests on a GPU. Without one it says so and ends with 77, which CTest reports as skipped.
#include "backend/make_backend.hpp"
#include "twin.hpp"

#if LOCKSTEP_CATCH2_V3
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

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
  setenv("LOCKSTEP_TEST_DEVICE", "cuda", 1);  // NOLINT(concurrency-mt-unsafe): there is one thread
  const auto kept = lockstep::testing::make_backend_under_test();
  std::cout << kept->describe() << std::endl;
  return Catch::Session().run(argc, argv);
}
