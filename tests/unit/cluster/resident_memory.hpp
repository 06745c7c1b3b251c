// What this process occupies.
#pragma once

#include <unistd.h>

#include <fstream>

namespace lockstep::testing {

/// In MB, as the system counts it.
inline double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

}  // namespace lockstep::testing
