// See progress_reporter.hpp.
#include "cluster/progress_reporter.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep {

namespace {

constexpr double between_reports_s = 0.2;
constexpr int first_steps = 1;  // make kernels and touch memory for the first time: they tell nothing of the next

}  // namespace

ProgressReporter::ProgressReporter(int descriptor, Clock clock) : descriptor_(descriptor), clock_(std::move(clock)) {}

void ProgressReporter::busy() noexcept {
  if (descriptor_ < 0) return;
  const double now = clock_();
  count_silence(now);
  if (report_.activity == Activity::training) window_seconds_ += now - window_began_;
  become(Activity::busy, now);
}

void ProgressReporter::forget_pace() noexcept {
  steps_known_ = 0;
  longest_silence_ = 0;
  report_.longest_silence = 0;
  busy();
}

void ProgressReporter::step_begins() noexcept {
  if (descriptor_ < 0) return;
  const double now = clock_();
  count_silence(now);
  if (report_.activity == Activity::training) return;
  window_began_ = now;
  become(Activity::training, now);
}

void ProgressReporter::step_done(const StepFigures& figures) noexcept {
  if (descriptor_ < 0) return;
  const double now = clock_();
  count_silence(now);
  if (steps_known_ <= first_steps) ++steps_known_;
  if (steps_known_ <= first_steps) longest_silence_ = 0;
  // Of the next step it is only known how long it takes once one like it has ended.
  if (steps_known_ > first_steps) report_.longest_silence = longest_silence_;
  report_.step = figures.step;
  report_.epoch = figures.epoch;
  report_.loss = figures.loss;
  report_.allreduce_seconds = figures.allreduce_seconds;
  report_.wait_seconds = figures.wait_seconds;
  window_images_ += figures.images;
  if (const double passed = window_seconds_ + now - window_began_; passed >= between_reports_s) {
    report_.images_per_second = window_images_ / passed;
    window_began_ = now;
    window_seconds_ = 0;
    window_images_ = 0;
  }
  become(Activity::training, now);
}

void ProgressReporter::waiting(bool still) noexcept {
  if (descriptor_ < 0) return;
  const double now = clock_();
  if (still && !std::exchange(is_waiting_, true)) {
    wait_began_ = now;
    before_wait_ = report_.activity;
  }
  if (still && now - wait_began_ > between_reports_s) {
    last_sign_ = now;  // who waits gives signs of life
    become(Activity::waiting, now);
  }
  if (!still && std::exchange(is_waiting_, false)) become(before_wait_, now);
}

void ProgressReporter::become(Activity activity, double now) noexcept {
  if (std::exchange(report_.activity, activity) != activity || now >= next_) tell(now);
}

/// Only within steps: what takes long elsewhere is no measure for them.
void ProgressReporter::count_silence(double now) noexcept {
  if (report_.activity == Activity::training) longest_silence_ = std::max(longest_silence_, now - last_sign_);
  last_sign_ = now;
}

void ProgressReporter::tell(double now) noexcept {
  next_ = now + between_reports_s;
  const std::string bytes = to_frame(report_).body;
  (void)send(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);  // the next one tells as well
}

}  // namespace lockstep
