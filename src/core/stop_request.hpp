// A launcher's request to stop the job, sent to one of its trainers. A training step carries it to all ranks, so that
// every rank acts on it in the same step.
#pragma once

#include <cstdint>

namespace lockstep {

/// In order of urgency: all ranks act on the most urgent request of any rank.
enum class StopRequest : std::uint8_t {
  none = 0,
  after_next_backup = 1,  ///< exit with code 75 after the next backup that is due
  after_this_step = 2,    ///< back up after this step, then exit with code 75
};

}  // namespace lockstep
