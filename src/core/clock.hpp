// The only access to time. Code that measures or prints durations takes a `Clock`, so tests can pass a fake one.
#pragma once

#include <functional>

namespace lockstep {

/// Returns seconds since a fixed, arbitrary point in time.
using Clock = std::function<double()>;

/// Seconds on a clock that never goes back; for durations.
[[nodiscard]] double monotonic_seconds() noexcept;

/// CPU seconds that this thread has used.
[[nodiscard]] double thread_cpu_seconds() noexcept;

/// Seconds since 1970-01-01 UTC; for time stamps.
[[nodiscard]] double wall_clock_seconds() noexcept;

/// Seconds since the kernel started this process, including the loading of libraries; resolution 0.01 s. NaN if /proc
/// cannot be read.
[[nodiscard]] double seconds_since_process_start();

}  // namespace lockstep
