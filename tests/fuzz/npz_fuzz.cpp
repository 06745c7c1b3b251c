// Fuzzes the npz reader with the bytes as an archive and as a NumPy header alone, since fuzzers rarely find a zip
// file's checksums. Any bytes must yield arrays or a DataError.
#include "data/npz.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  try {
    const lockstep::NpzArchive archive(std::as_bytes(bytes), "input");
    for (const auto* key : {"x_train", "y_train"}) {
      if (archive.read(key).bytes.size() > (std::size_t{1} << 30U)) std::abort();
    }
  } catch (const lockstep::DataError&) {
    // expected for most inputs
  }
  try {
    if (lockstep::parse_npy_header(bytes, "input").bytes > size) std::abort();
  } catch (const lockstep::DataError&) {
    // likewise
  }
  return 0;
}
