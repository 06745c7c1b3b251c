// A point in time by which an operation must finish.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/clock.hpp"

namespace lockstep {

class Deadline {
 public:
  [[nodiscard]] static Deadline after(double seconds) noexcept { return Deadline(monotonic_seconds() + seconds); }
  [[nodiscard]] static Deadline never() noexcept { return Deadline(std::numeric_limits<double>::infinity()); }

  /// 0 once the deadline has passed.
  [[nodiscard]] double seconds_left() const noexcept { return std::max(0.0, moment_ - monotonic_seconds()); }
  [[nodiscard]] bool passed() const noexcept { return seconds_left() <= 0; }

  /// The timeout argument of poll(): milliseconds, rounded up so that poll() does not return early; -1 for never.
  [[nodiscard]] int poll_timeout() const noexcept {
    if (std::isinf(moment_)) return -1;
    return static_cast<int>(std::min(std::ceil(seconds_left() * 1000), 1e9));
  }

  friend bool operator<(const Deadline& left, const Deadline& right) noexcept { return left.moment_ < right.moment_; }

 private:
  explicit Deadline(double moment) noexcept : moment_(moment) {}

  double moment_;
};

}  // namespace lockstep
