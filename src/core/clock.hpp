// The one door to time. What measures or shows durations takes a `Clock`, so that tests bring their own.
#pragma once

#include <functional>

namespace lockstep {

/// Seconds since some fixed moment.
using Clock = std::function<double()>;

/// Seconds on a clock that never goes back: for durations.
[[nodiscard]] double monotonic_seconds() noexcept;

/// Seconds that this thread has had a core: durations in which others' turns do not count.
[[nodiscard]] double thread_cpu_seconds() noexcept;

/// Seconds since 1970-01-01 UTC: for time stamps.
[[nodiscard]] double wall_clock_seconds() noexcept;

/// Seconds since the kernel started this process (to a hundredth), so that loading libraries counts as well. NaN where
/// /proc does not tell.
[[nodiscard]] double seconds_since_process_start();

}  // namespace lockstep
