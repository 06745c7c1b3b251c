// See catch_session.hpp.
#if LOCKSTEP_CATCH2_V3
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include "support/catch_session.hpp"

namespace lockstep::testing {

int run_test_cases(int argc, char** argv) { return Catch::Session().run(argc, argv); }

}  // namespace lockstep::testing
