// Fuzzes TF_CONFIG. Any text must yield a consistent cluster or a UsageError of one line.
#include "cluster/config/tf_config.hpp"

#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  return lockstep::testing::mutate_from(
      {R"({"cluster": {"chief": ["c:1"], "worker": ["a:5000", "[fd00::7]:80",]}, "task": {"type": "worker", "index": 0}})",
       R"({"cluster": {"worker": {"0": "a:1", "7": "b:1"}, "ps": ["p:1"]}, "task": {"type": "worker", "index": "7"}})"},
      data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lockstep::ClusterSpec spec = lockstep::parse_tf_config(std::string(data, data + size));
    if (spec.rank.has_value() == spec.tasks.empty()) std::abort();
    if (spec.rank.value_or(0) >= spec.workers()) std::abort();
  } catch (const lockstep::UsageError& error) {
    // expected for most inputs
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
