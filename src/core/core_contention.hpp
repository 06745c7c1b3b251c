// How much of their time the threads of this process wait for a core that others use.
#pragma once

namespace lockstep {

/// Times since their start of the threads of this process that live now, in seconds.
struct CoreTimes {
  double running = 0;
  double waiting = 0;  ///< ready to run, without a core
  [[nodiscard]] double total() const noexcept { return running + waiting; }
};

/// Zeros where the kernel does not tell (/proc/self/task/*/schedstat).
[[nodiscard]] CoreTimes read_core_times();

/// The part of the time between two readings that threads waited, from 0 to 1.
[[nodiscard]] double waiting_share(const CoreTimes& before, const CoreTimes& after);

}  // namespace lockstep
