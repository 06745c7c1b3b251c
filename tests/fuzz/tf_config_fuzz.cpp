// libFuzzer on TF_CONFIG: any text must give a cluster that holds together, or a UsageError.
#include "cluster/tf_config.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lockstep::ClusterSpec spec = lockstep::parse_tf_config(std::string(data, data + size));
    if (spec.rank.has_value() == spec.tasks.empty()) std::abort();
    if (spec.rank.value_or(0) >= spec.workers()) std::abort();
  } catch (const lockstep::UsageError& error) {
    // what is expected of most inputs, in one line
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
