// The largest of the most recent durations, so that one hiccup does not raise a limit forever.
#pragma once

#include <algorithm>

namespace lockstep {

/// The maximum of at least the last 50 values and at most the last 100. Takes constant time and space.
class RecentMaximum {
 public:
  void add(double value) noexcept {
    if (count_ == block) {
      previous_ = current_;
      current_ = 0;
      count_ = 0;
    }
    current_ = std::max(current_, value);
    ++count_;
  }
  void clear() noexcept { *this = {}; }
  [[nodiscard]] double value() const noexcept { return std::max(previous_, current_); }  ///< 0 without values

 private:
  static constexpr int block = 50;

  double previous_ = 0;  ///< of the last full block
  double current_ = 0;   ///< of the block that is being filled
  int count_ = 0;        ///< values in it
};

}  // namespace lockstep
