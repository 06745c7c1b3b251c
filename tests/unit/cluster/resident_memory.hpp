// The resident memory of this process.
#pragma once

#include <unistd.h>

#include <fstream>

namespace lockstep::testing {

/// Returns the resident set size from /proc/self/statm, in MB.
inline double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

}  // namespace lockstep::testing
