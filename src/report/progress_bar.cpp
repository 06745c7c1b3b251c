// See progress_bar.hpp. Two differences from Keras: the time per step excludes validation, and if data ends early the
// final line shows the actual number of steps, not the expected one.
#include "report/progress_bar.hpp"

#include "core/log.hpp"
#include "report/log_value.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

constexpr int bar_width = 20;
constexpr double seconds_between_draws = 0.05;

constexpr std::string_view bold = "\x1b[1m";
constexpr std::string_view green = "\x1b[32m";
constexpr std::string_view white = "\x1b[37m";
constexpr std::string_view plain = "\x1b[0m";

}  // namespace

ProgressBar::ProgressBar(const ProgressOptions& options, std::ostream& out, Clock clock)
    : options_(options), out_(out), clock_(std::move(clock)) {
  if (options_.verbose == 1 && !options_.terminal.is_interactive) options_.verbose = 2;
  line_.reserve(1024);
  metrics_.reserve(16);
}

void ProgressBar::begin_epoch(int epoch, int first_step) {
  if (options_.verbose == 0) return;
  if (options_.epochs > 1) out_ << "Epoch " << epoch + 1 << '/' << options_.epochs << '\n' << std::flush;
  initial_step_ = current_step_ = first_step;
  previous_columns_ = 0;
  start_ = clock_();
  first_step_end_ = last_step_end_ = start_;
  last_draw_ = -std::numeric_limits<double>::infinity();
}

void ProgressBar::update(int step, std::span<const MetricValue> metrics) {
  if (options_.verbose == 0) return;
  const double now = clock_();
  if (current_step_ == initial_step_) first_step_end_ = now;
  current_step_ = step;
  last_step_end_ = now;
  if (options_.verbose != 1 || now - last_draw_ < seconds_between_draws) return;

  metrics_.assign(metrics.begin(), metrics.end());
  std::sort(metrics_.begin(), metrics_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  draw(now, false);
}

void ProgressBar::end_epoch(const Logs& logs) {
  if (options_.verbose == 0) return;
  if (current_step_ == 0) current_step_ = options_.steps;
  if (options_.steps == 0) options_.steps = current_step_;
  metrics_.clear();
  for (const auto& [name, value] : logs) metrics_.push_back({name, value});
  draw(clock_(), true);
}

double ProgressBar::seconds_per_step() const noexcept {
  const int made = current_step_ - initial_step_;
  // The first step warms up caches, so it does not count once there is a second one.
  if (made > 1 && last_step_end_ > first_step_end_) return (last_step_end_ - first_step_end_) / (made - 1);
  return made > 0 ? (last_step_end_ - start_) / made : 0.0;
}

void ProgressBar::draw(double now, bool last) {
  line_.clear();
  columns_ = 0;
  if (options_.verbose == 1) {
    if (!is_drawing_line()) previous_columns_ = 0;  // a message has begun a new line
    line_.append(previous_columns_, '\b');
    line_ += '\r';
    append_bar();
    line_ += bold;
    const double seconds_left = seconds_per_step() * (options_.steps - current_step_);
    const auto whole_seconds = static_cast<long>(std::clamp(seconds_left, 0.0, 1e9));
    if (last || options_.steps == 0) {
      append("{:.0f}s", now - start_);
    } else if (seconds_left > 3600) {
      append("{}:{:02}:{:02}", whole_seconds / 3600, whole_seconds % 3600 / 60, whole_seconds % 60);
    } else if (seconds_left > 60) {
      append("{}:{:02}", whole_seconds / 60, whole_seconds % 60);
    } else {
      append("{}s", whole_seconds);
    }
    line_ += plain;
  } else {
    append("{}/{} - {:.0f}s -", current_step_, options_.steps, now - start_);
  }
  append_step_time();
  append_metrics();
  if (previous_columns_ > columns_) line_.append(previous_columns_ - columns_, ' ');
  if (last) line_ += '\n';
  out_ << line_ << std::flush;
  previous_columns_ = options_.verbose == 1 ? columns_ : 0;
  set_drawing_line(options_.verbose == 1 && !last);
  last_draw_ = now;
}

void ProgressBar::append_bar() {
  if (options_.steps == 0) {
    append("{:7}/Unknown ", current_step_);
    return;
  }
  line_ += bold;
  append("{:{}}/{}", current_step_, fmt::formatted_size("{}", options_.steps), options_.steps);
  line_ += plain;
  append(" ");

  const double fraction = std::clamp(static_cast<double>(current_step_) / options_.steps, 0.0, 1.0);
  const int done = static_cast<int>(bar_width * fraction);
  const std::string_view cell = options_.terminal.utf8 ? "━" : "=";
  line_ += green;
  for (int i = 0; i < bar_width; ++i) {
    if (i == done) {
      line_ += plain;
      line_ += white;
    }
    line_ += cell;
  }
  columns_ += bar_width;
  line_ += plain;
  append(" ");
}

void ProgressBar::append_step_time() {
  const double seconds = seconds_per_step();
  if (seconds >= 1 || seconds == 0) {
    append(" {:.0f}s/step", seconds);
  } else if (seconds >= 1e-3) {
    append(" {:.0f}ms/step", seconds * 1e3);
  } else {
    append(" {:.0f}us/step", seconds * 1e6);
  }
}

void ProgressBar::append_metrics() {
  for (const MetricValue& metric : metrics_) {
    append(" - {}: {}", metric.name, log_value(metric.value));
  }
}

}  // namespace lockstep
