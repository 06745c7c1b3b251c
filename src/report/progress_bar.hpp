// What the chief's user sees of an epoch while it runs, in Keras 3's form: on a terminal a bar drawn anew at most every
// 50 ms (verbose=1), elsewhere, or with verbose=2, one line when the epoch is over.
#pragma once

#include <lockstep/core/history.hpp>

#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "report/terminal.hpp"

namespace lockstep {

/// A metric's value so far in this epoch, as it shall be shown.
struct MetricValue {
  std::string_view name;
  double value = 0;
};

struct ProgressOptions {
  int epochs = 1;   ///< "Epoch i/n" is printed where there are several
  int steps = 0;    ///< of one epoch; 0: unknown
  int verbose = 1;  ///< 0 nothing, 1 bar (where the terminal redraws), 2 lines
  Terminal terminal = {};
};

/// Not thread-safe. The stream must outlive the bar.
class ProgressBar {
 public:
  ProgressBar(const ProgressOptions& options, std::ostream& out, Clock clock = monotonic_seconds);

  /// `epoch` counts from 0. `first_step` steps of it were made by an earlier run.
  void begin_epoch(int epoch, int first_step = 0);

  /// After every step, counted from 1. Reads the clock and returns, without allocating, where it is too early to draw.
  void update(int step, std::span<const MetricValue> metrics);

  /// The epoch's last word, validation included.
  void end_epoch(const Logs& logs);

 private:
  [[nodiscard]] double seconds_per_step() const noexcept;
  void draw(double now, bool last);
  void append_bar();
  void append_metrics();
  void append(std::string_view text);         ///< text that takes columns
  void append_escape(std::string_view code);  ///< takes none
  void append_number(const char* format, double value);
  void append_step_time();

  ProgressOptions options_;
  std::ostream& out_;
  Clock clock_;
  std::vector<MetricValue> metrics_;  ///< sorted by name
  std::string line_;
  std::size_t columns_ = 0;           ///< of line_
  std::size_t previous_columns_ = 0;  ///< of the line on the screen
  int first_ = 0;                     ///< steps of an earlier run
  int seen_ = 0;
  double start_ = 0;
  double first_step_end_ = 0;
  double last_step_end_ = 0;
  double last_draw_ = 0;
};

}  // namespace lockstep
