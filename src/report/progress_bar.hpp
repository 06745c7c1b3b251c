// The chief's progress display, in the format of Keras 3: on a terminal a bar that is redrawn at most every 50 ms
// (verbose=1); on other outputs, or with verbose=2, one line at the end of the epoch.
#pragma once

#include <lockstep/core/history.hpp>

#include <fmt/format.h>

#include <iterator>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "report/terminal.hpp"

namespace lockstep {

/// A metric's running value in this epoch.
struct MetricValue {
  std::string_view name;
  double value = 0;
};

struct ProgressOptions {
  int epochs = 1;   ///< "Epoch i/n" is printed if there are several
  int steps = 0;    ///< per epoch; 0: unknown
  int verbose = 1;  ///< 0: nothing; 1: a bar on an interactive terminal, otherwise lines; 2: lines
  Terminal terminal = {};
};

/// Not thread-safe. The stream must outlive the bar.
class ProgressBar {
 public:
  ProgressBar(const ProgressOptions& options, std::ostream& out, Clock clock = monotonic_seconds);

  /// `epoch` counts from 0. A resumed epoch starts at `first_step`: an earlier run made the steps before it.
  void begin_epoch(int epoch, int first_step = 0);

  /// Call after every step; `step` counts from 1. Returns without allocating while it is too early to redraw.
  void update(int step, std::span<const MetricValue> metrics);

  /// Draws the final line of the epoch. `logs` includes validation metrics.
  void end_epoch(const Logs& logs);

 private:
  [[nodiscard]] double seconds_per_step() const noexcept;
  void draw(double now, bool last);
  void append_bar();
  void append_metrics();
  void append_step_time();

  /// Appends to the line. The text must be ASCII, one column per character.
  template <typename... Arguments>
  void append(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    const std::size_t size = line_.size();
    fmt::format_to(std::back_inserter(line_), format, std::forward<Arguments>(arguments)...);
    columns_ += line_.size() - size;
  }

  ProgressOptions options_;
  std::ostream& out_;
  Clock clock_;
  std::vector<MetricValue> metrics_;  ///< sorted by name
  std::string line_;
  std::size_t columns_ = 0;           ///< width of line_ on the screen
  std::size_t previous_columns_ = 0;  ///< width of the line that the screen shows
  int initial_step_ = 0;              ///< steps of this epoch that an earlier run made
  int current_step_ = 0;
  double start_ = 0;
  double first_step_end_ = 0;
  double last_step_end_ = 0;
  double last_draw_ = 0;
};

}  // namespace lockstep
