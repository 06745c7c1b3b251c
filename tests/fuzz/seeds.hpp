// Where a fuzzer begins: libFuzzer finds JSON and archives in an hour, and we have seconds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace lockstep::testing {

/// For LLVMFuzzerCustomMutator: every 64th time, and where there is nothing yet, one of the seeds takes the input's
/// place before it is changed.
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
