// Fuzzes the IDX reader, plain and gzip. Any bytes must yield an array or a DataError.
#include "data/idx.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const lockstep::IdxArray array = lockstep::parse_idx(std::as_bytes(std::span(data, size)), "input");
    if (!array.values.empty() && static_cast<std::int64_t>(array.values.size()) != array.shape.elements()) std::abort();
  } catch (const lockstep::DataError&) {
    // expected for most inputs
  }
  return 0;
}
