// Draws the bar. Two departures from Keras: the time of a step leaves validation out, and a total that was never
// reached (data ended early) is not claimed.
#include "report/progress_bar.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
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
  if (options_.verbose == 1 && !options_.terminal.redraws) options_.verbose = 2;
  line_.reserve(1024);
  metrics_.reserve(16);
}

void ProgressBar::begin_epoch(int epoch, int first_step) {
  if (options_.verbose == 0) return;
  if (options_.epochs > 1) out_ << "Epoch " << epoch + 1 << '/' << options_.epochs << '\n' << std::flush;
  first_ = seen_ = first_step;
  previous_columns_ = 0;
  start_ = clock_();
  first_step_end_ = last_step_end_ = start_;
  last_draw_ = -std::numeric_limits<double>::infinity();
}

void ProgressBar::update(int step, std::span<const MetricValue> metrics) {
  if (options_.verbose == 0) return;
  const double now = clock_();
  if (seen_ == first_) first_step_end_ = now;
  seen_ = step;
  last_step_end_ = now;
  if (options_.verbose != 1 || now - last_draw_ < seconds_between_draws) return;

  metrics_.assign(metrics.begin(), metrics.end());
  std::sort(metrics_.begin(), metrics_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  draw(now, false);
}

void ProgressBar::end_epoch(const Logs& logs) {
  if (options_.verbose == 0) return;
  if (seen_ == 0) seen_ = options_.steps;
  if (options_.steps == 0) options_.steps = seen_;
  metrics_.clear();
  for (const auto& [name, value] : logs) metrics_.push_back({name, value});
  draw(clock_(), true);
}

double ProgressBar::seconds_per_step() const noexcept {
  const int made = seen_ - first_;
  // The first step warms up caches and is left out as soon as there is another.
  if (made > 1 && last_step_end_ > first_step_end_) return (last_step_end_ - first_step_end_) / (made - 1);
  return made > 0 ? (last_step_end_ - start_) / made : 0.0;
}

void ProgressBar::draw(double now, bool last) {
  line_.clear();
  columns_ = 0;
  if (options_.verbose == 1) {
    line_.append(previous_columns_, '\b');
    line_ += '\r';
    append_bar();
    append_escape(bold);
    const double left = seconds_per_step() * (options_.steps - seen_);
    const auto whole = static_cast<long>(std::clamp(left, 0.0, 1e9));
    std::array<char, 48> text{};
    if (last || options_.steps == 0) {
      append_number("%.0fs", now - start_);
    } else if (left > 3600) {
      std::snprintf(text.data(), text.size(), "%ld:%02ld:%02ld", whole / 3600, whole % 3600 / 60, whole % 60);
    } else if (left > 60) {
      std::snprintf(text.data(), text.size(), "%ld:%02ld", whole / 60, whole % 60);
    } else {
      std::snprintf(text.data(), text.size(), "%lds", whole);
    }
    append(text.data());
    append_escape(plain);
  } else {
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%d/%d - %.0fs -", seen_, options_.steps, now - start_);
    append(text.data());
  }
  append_step_time();
  append_metrics();
  if (previous_columns_ > columns_) line_.append(previous_columns_ - columns_, ' ');
  if (last) line_ += '\n';
  out_ << line_ << std::flush;
  previous_columns_ = options_.verbose == 1 ? columns_ : 0;
  last_draw_ = now;
}

void ProgressBar::append_bar() {
  std::array<char, 48> count{};
  if (options_.steps == 0) {
    std::snprintf(count.data(), count.size(), "%7d/Unknown ", seen_);
    append(count.data());
    return;
  }
  const int digits = std::snprintf(nullptr, 0, "%d", options_.steps);
  std::snprintf(count.data(), count.size(), "%*d/%d", digits, seen_, options_.steps);
  append_escape(bold);
  append(count.data());
  append_escape(plain);
  append(" ");

  const double part = std::clamp(static_cast<double>(seen_) / options_.steps, 0.0, 1.0);
  const int done = static_cast<int>(bar_width * part);
  const std::string_view cell = options_.terminal.utf8 ? "━" : "=";
  append_escape(green);
  for (int i = 0; i < bar_width; ++i) {
    if (i == done) {
      append_escape(plain);
      append_escape(white);
    }
    line_ += cell;
  }
  columns_ += bar_width;
  append_escape(plain);
  append(" ");
}

void ProgressBar::append_step_time() {
  const double seconds = seconds_per_step();
  if (seconds >= 1 || seconds == 0) {
    append_number(" %.0fs/step", seconds);
  } else if (seconds >= 1e-3) {
    append_number(" %.0fms/step", seconds * 1e3);
  } else {
    append_number(" %.0fus/step", seconds * 1e6);
  }
}

void ProgressBar::append_metrics() {
  for (const MetricValue& metric : metrics_) {
    append(" - ");
    append(metric.name);
    append_number(std::abs(metric.value) > 1e-3 ? ": %.4f" : ": %.4e", metric.value);
  }
}

void ProgressBar::append(std::string_view text) {
  line_ += text;
  columns_ += text.size();
}

void ProgressBar::append_escape(std::string_view code) { line_ += code; }

void ProgressBar::append_number(const char* format, double value) {
  std::array<char, 352> text{};  // the largest double has 309 digits before the point
  const int length = std::snprintf(text.data(), text.size(), format, value);
  append({text.data(), static_cast<std::size_t>(std::max(0, length))});
}

}  // namespace lockstep
