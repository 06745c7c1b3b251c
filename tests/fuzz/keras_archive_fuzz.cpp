// Fuzzes the archives of .keras files. Any bytes must yield members or a DataError. The content of members is not
// parsed: keras_config_fuzz covers JSON, and HDF5 crashes on damaged files, which is why Lockstep reads them in a child
// process (see tests/unit/checkpoint/corruption_test.cpp).
#include "checkpoint/keras/zip_file.hpp"
#include "seeds.hpp"

#include <lockstep/core/error.hpp>

#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace lockstep;

namespace {

/// More bytes than any input holds, so that a reader that trusts a declared size is caught.
constexpr std::size_t max_member_bytes = std::size_t{1} << 24U;

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> archives = [] {
    const std::string_view config = R"({"class_name": "Sequential"})";
    const std::string weights(200, 'w');
    const std::vector<ZipMember> members{{"metadata.json", {}},
                                         {"config.json", std::as_bytes(std::span(config))},
                                         {"model.weights.h5", std::as_bytes(std::span(weights))}};
    const std::vector<std::byte> bytes = make_zip(members);
    return std::vector<std::string>{std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
  }();
  return archives;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int lot) {
  return testing::mutate_from(seeds(), data, size, max_size, lot);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = memfd_create("input.keras", 0);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const ZipReader archive("/proc/self/fd/" + std::to_string(file));
    for (const char* member : {"config.json", "model.weights.h5"}) {
      try {
        if (archive.read(member, max_member_bytes).size() > max_member_bytes) std::abort();
      } catch (const DataError&) {
        // expected for most members
      }
    }
  } catch (const DataError&) {
    // expected for most inputs
  }
  close(file);
  return 0;
}
