// The main function of the unit tests.
#include "support/catch_session.hpp"

int main(int argc, char** argv) { return lockstep::testing::run_test_cases(argc, argv); }
