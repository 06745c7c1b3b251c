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

#ifdef __SANITIZE_THREAD__
/// ThreadSanitizer calls it. What it reports there is not Lockstep's: Open MPI's TCP transport takes two locks in
/// either order, and Catch's handler of fatal signals allocates.
extern "C" const char* __tsan_default_suppressions() {
  return "deadlock:mca_btl_tcp\nsignal:handleFatalErrorCondition\nsignal:reportFatal\n";
}
#endif
