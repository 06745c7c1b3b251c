// Reports a trainer's progress, speed and activity (computing, waiting, busy outside of steps) to its launcher.
//
// The training thread itself reports, because a separate thread would keep reporting while training hangs. A long
// silence therefore means that training is stuck; each report includes the longest silence of recent healthy steps. The
// cost is a clock read per call. A report is sent when the activity changes, otherwise at most five times a second.
// Losing a report is harmless, because the next one repeats all values.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cluster/rendezvous/message.hpp"
#include "cluster/rendezvous/recent_maximum.hpp"
#include "core/clock.hpp"

namespace lockstep {

/// The outcome of a step.
struct StepStats {
  std::uint64_t step = 0;   ///< completed optimizer steps of the job, across restarts
  std::uint64_t epoch = 0;  ///< completed epochs
  double loss = 0;
  double examples = 0;           ///< in this step, on all ranks
  double allreduce_seconds = 0;  ///< total; see Progress
  double wait_seconds = 0;       ///< total; see Progress
  GradientCounts gradients = {};
};

class ProgressReporter {
 public:
  /// With descriptor -1 there is no launcher, and nothing is sent.
  explicit ProgressReporter(int descriptor, Clock clock = monotonic_seconds);

  /// Reports that this rank joins the MPI world; the next report_busy() reports that the world is complete.
  void report_starting() noexcept;

  /// Begins a possibly long phase without steps: loading, compiling, evaluating, saving. Call it again between its
  /// stages.
  void report_busy() noexcept;

  /// Forgets the duration of previous steps, because the next ones train another model.
  void reset_pace() noexcept;

  /// The next steps have no typical duration, because a framework may compile in the middle of an epoch: a long silence
  /// is judged as in a busy phase.
  void expect_irregular_steps() noexcept { are_steps_irregular_ = true; }

  void report_step_begin() noexcept;
  void report_step_end(const StepStats& stats) noexcept;

  /// Counts a backup that was due while another one was being written.
  void add_skipped_backup() noexcept { ++backups_->skipped; }
  /// For the thread that writes backups. `time`: seconds since 1970.
  struct BackupCounters {
    std::atomic<std::uint64_t> step{0};
    std::atomic<std::uint64_t> time{0};
    std::atomic<std::uint64_t> skipped{0};
    std::atomic<std::uint64_t> failed{0};
  };
  [[nodiscard]] std::shared_ptr<BackupCounters> backups() const noexcept { return backups_; }

  /// Call it repeatedly with true while this rank waits for another, and once with false afterwards.
  void report_waiting(bool is_waiting) noexcept;

 private:
  void set_activity(Activity activity, double now) noexcept;
  void update_silence(double now) noexcept;
  void send_report(double now) noexcept;

  int descriptor_;
  Clock clock_;
  Progress report_;
  std::shared_ptr<BackupCounters> backups_ = std::make_shared<BackupCounters>();
  double next_report_ = 0;         ///< earliest time of the next report without a change
  double last_opportunity_ = 0;    ///< last opportunity to send a report
  double max_silent_seconds_ = 0;  ///< longest time between opportunities within this step
  RecentMaximum silent_seconds_;   ///< the same of the steps before
  int steps_known_ = 0;            ///< since reset_pace()
  double window_began_ = 0;        ///< start of the throughput window
  double window_seconds_ = 0;      ///< duration of the window before a busy phase interrupted it
  double window_examples_ = 0;
  bool are_steps_irregular_ = false;
  bool is_waiting_ = false;
  double wait_began_ = 0;
  Activity before_wait_ = Activity::busy;
};

}  // namespace lockstep
