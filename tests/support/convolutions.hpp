// The convolutions that tests ask for: LOCKSTEP_TEST_CONVOLUTIONS=winograd forces Winograd's algorithm, so that the
// same cases test it on small models.
#pragma once

#include "core/environment.hpp"

#include <lockstep/core/convolutions.hpp>

namespace lockstep::testing {

[[nodiscard]] inline Convolutions convolutions_under_test() {
  const bool is_forced = value_of(current_environment(), "LOCKSTEP_TEST_CONVOLUTIONS") == "winograd";
  return is_forced ? Convolutions::winograd : Convolutions::automatic;
}

}  // namespace lockstep::testing
