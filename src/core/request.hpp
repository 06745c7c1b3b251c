// What a launcher asks of the job through one of its trainers. A training step carries it to all ranks, so that all
// learn of it with the same step.
#pragma once

#include <cstdint>

namespace lockstep {

/// In the order of their urgency.
enum class Request : std::uint8_t {
  none = 0,
  leave_with_backup = 1,  ///< end with 75 after the next backup that comes due
  leave = 2,              ///< save after this step, and end with 75
};

}  // namespace lockstep
