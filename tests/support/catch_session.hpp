// Runs the linked test cases. Compiling the implementation of header-only Catch2 2 takes as long as a hundred tests:
// catch_session.cpp does it once for all test programs.
#pragma once

namespace lockstep::testing {

/// Runs the cases that the command line selects. Returns the exit code of the process.
int run_test_cases(int argc, char** argv);

}  // namespace lockstep::testing
