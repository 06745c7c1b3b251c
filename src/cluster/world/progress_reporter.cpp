// See progress_reporter.hpp.
#include "cluster/world/progress_reporter.hpp"

#include "core/fault_point.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep {

namespace {

constexpr double report_interval_s = 0.2;
constexpr int warmup_steps = 1;  // they compile kernels and touch memory for the first time

}  // namespace

ProgressReporter::ProgressReporter(int descriptor, Clock clock) : descriptor_(descriptor), clock_(std::move(clock)) {}

void ProgressReporter::report_starting() noexcept {
  if (descriptor_ >= 0) set_activity(Activity::starting, clock_());
}

void ProgressReporter::report_busy() noexcept {
  if (descriptor_ < 0) return;
  const double now = clock_();
  update_silence(now);
  if (report_.activity == Activity::training) window_seconds_ += now - window_began_;
  set_activity(Activity::busy, now);
}

void ProgressReporter::reset_pace() noexcept {
  steps_known_ = 0;
  max_silent_seconds_ = 0;
  silent_seconds_.clear();
  report_.max_silent_seconds = 0;
  report_busy();
}

void ProgressReporter::report_step_begin() noexcept {
  if (descriptor_ < 0) return;
  const double now = clock_();
  update_silence(now);
  if (report_.activity == Activity::training) return;
  window_began_ = now;
  set_activity(Activity::training, now);
}

void ProgressReporter::report_step_end(const StepStats& stats) noexcept {
  if (descriptor_ < 0) return;
  const double now = clock_();
  update_silence(now);
  if (steps_known_ <= warmup_steps) ++steps_known_;
  if (steps_known_ > warmup_steps) silent_seconds_.add(max_silent_seconds_);
  max_silent_seconds_ = 0;
  // The duration of a step is known only after a typical one has ended.
  if (steps_known_ > warmup_steps && !are_steps_irregular_) report_.max_silent_seconds = silent_seconds_.value();
  report_.step = stats.step;
  report_.epoch = stats.epoch;
  report_.loss = stats.loss;
  report_.allreduce_seconds = stats.allreduce_seconds;
  report_.wait_seconds = stats.wait_seconds;
  report_.gradients = stats.gradients;
  window_examples_ += stats.examples;
  if (const double passed = window_seconds_ + now - window_began_; passed >= report_interval_s) {
    report_.examples_per_second = window_examples_ / passed;
    window_began_ = now;
    window_seconds_ = 0;
    window_examples_ = 0;
  }
  set_activity(Activity::training, now);
}

void ProgressReporter::report_waiting(bool is_waiting) noexcept {
  if (descriptor_ < 0) return;
  const double now = clock_();
  if (is_waiting && !std::exchange(is_waiting_, true)) {
    wait_began_ = now;
    before_wait_ = report_.activity;
  }
  if (is_waiting && now - wait_began_ > report_interval_s) {
    if (report_.activity != Activity::waiting) record_event({"wait", report_.step});
    last_opportunity_ = now;  // a waiting rank keeps reporting
    set_activity(Activity::waiting, now);
  }
  if (!is_waiting && std::exchange(is_waiting_, false)) {
    if (report_.activity == Activity::waiting) record_event({"waited", report_.step});
    set_activity(before_wait_, now);
  }
}

void ProgressReporter::set_activity(Activity activity, double now) noexcept {
  if (std::exchange(report_.activity, activity) != activity || now >= next_report_) send_report(now);
}

/// Measures only within steps, because other phases may take longer.
void ProgressReporter::update_silence(double now) noexcept {
  if (report_.activity == Activity::training)
    max_silent_seconds_ = std::max(max_silent_seconds_, now - last_opportunity_);
  last_opportunity_ = now;
}

void ProgressReporter::send_report(double now) noexcept {
  next_report_ = now + report_interval_s;
  report_.backups = {
      .step = backups_->step, .time = backups_->time, .skipped = backups_->skipped, .failed = backups_->failed};
  const std::string bytes = to_datagram(report_);
  (void)send(descriptor_, bytes.data(), bytes.size(),
             MSG_DONTWAIT | MSG_NOSIGNAL);  // a lost report is repeated by the next
}

}  // namespace lockstep
