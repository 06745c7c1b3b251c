// See core_contention.hpp.
#include "core/core_contention.hpp"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace lockstep {

CoreTimes read_core_times() {
  CoreTimes times;
  std::error_code unreadable;
  for (std::filesystem::directory_iterator thread("/proc/self/task", unreadable), end; !unreadable && thread != end;
       thread.increment(unreadable)) {
    double running = 0;  // nanoseconds
    double waiting = 0;
    if (!(std::ifstream(thread->path() / "schedstat") >> running >> waiting)) continue;
    times.running += running / 1e9;
    times.waiting += waiting / 1e9;
  }
  return times;
}

double waiting_share(const CoreTimes& before, const CoreTimes& after) {
  const double running = after.running - before.running;
  const double waiting = after.waiting - before.waiting;
  return waiting > 0 && running >= 0 ? waiting / (running + waiting) : 0;
}

}  // namespace lockstep
