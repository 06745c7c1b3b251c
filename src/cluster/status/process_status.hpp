// What Prometheus' clients export of their own process, under the same names in every language.
#pragma once

#include <cstdint>

namespace lockstep {

struct ProcessStatus {
  double cpu_seconds = 0;  ///< user and system time
  double start_time = 0;   ///< seconds since 1970
  std::uint64_t resident_bytes = 0;
  std::uint64_t virtual_bytes = 0;
  std::uint64_t open_descriptors = 0;
  std::uint64_t max_descriptors = 0;
};

/// This process's, from /proc; 0 for what cannot be read.
[[nodiscard]] ProcessStatus read_process_status();

}  // namespace lockstep
