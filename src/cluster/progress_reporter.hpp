// What a trainer tells its launcher of itself, over the socket pair that they share: how far it is, how fast, and
// whether it computes, waits for others, or is busy with something that has no steps.
//
// The thread that trains tells it, not one of its own: a thread would go on telling that all is well when training
// hangs. So silence means that training stands still, and each report says how long silences may last. It costs a look
// at the clock a step; the launcher is told when the activity changes, else five times a second at most. A report that
// is lost does no harm, the next one says all of it again.
#pragma once

#include <cstdint>

#include "cluster/message.hpp"
#include "core/clock.hpp"

namespace lockstep {

/// What a step that has ended brings.
struct StepFigures {
  std::uint64_t step = 0;   ///< of the whole training that are done; a restored one goes on counting
  std::uint64_t epoch = 0;  ///< that are done
  double loss = 0;
  double images = 0;             ///< of this step, on all ranks
  double allreduce_seconds = 0;  ///< so far, as wait_seconds: see Progress
  double wait_seconds = 0;
};

class ProgressReporter {
 public:
  /// -1: there is no launcher, and nothing is told.
  explicit ProgressReporter(int descriptor, Clock clock = monotonic_seconds);

  /// What follows has no steps and may take long: loading, compiling, evaluating, saving. Call it again between parts.
  void busy() noexcept;

  /// The next steps may take longer than those before: they are another model's.
  void forget_pace() noexcept;

  void step_begins() noexcept;
  void step_done(const StepFigures& figures) noexcept;

  /// Again and again while this rank waits for another, and once with false when that is over.
  void waiting(bool still) noexcept;

 private:
  void become(Activity activity, double now) noexcept;
  void count_silence(double now) noexcept;
  void tell(double now) noexcept;

  int descriptor_;
  Clock clock_;
  Progress report_;
  double next_ = 0;             ///< not before this, where nothing has changed
  double last_sign_ = 0;        ///< when it could have told something
  double longest_silence_ = 0;  ///< between two of these, within steps
  int steps_known_ = 0;         ///< since the pace was forgotten
  double window_began_ = 0;     ///< over which images are counted: steps since then
  double window_seconds_ = 0;   ///< and those before the last time it was busy
  double window_images_ = 0;
  bool is_waiting_ = false;
  double wait_began_ = 0;
  Activity before_wait_ = Activity::busy;
};

}  // namespace lockstep
