// Seeds for fuzzers, because libFuzzer would take an hour to discover JSON or archives and runs only for seconds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace lockstep::testing {

/// For LLVMFuzzerCustomMutator: replaces every 64th input, and empty ones, by a seed before mutating it.
inline std::size_t mutate_from(const std::vector<std::string>& seeds, std::uint8_t* data, std::size_t size,
                               std::size_t max_size, unsigned int lot) {
  if (size < 4 || lot % 64 == 0) {
    const std::string& seed = seeds[lot / 64 % seeds.size()];
    size = std::min(seed.size(), max_size);
    std::copy_n(seed.begin(), size, data);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

}  // namespace lockstep::testing
