// Valid files with random mutations (fixed seeds) must be read or cause a DataError. The libFuzzer targets in
// tests/fuzz search further.
#include "core/random.hpp"
#include "data/idx.hpp"
#include "data/npz.hpp"
#include "support/catch.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Applies one to eight changes: sets a byte, flips a bit, duplicates or removes a range, or cuts off the end.
Bytes mutate(Bytes bytes, RandomStream& random) {
  static constexpr std::uint8_t interesting[] = {0, 1, 8, 0x7F, 0x80, 0xFF, '(', ')', ',', '\'', '9'};
  for (std::uint32_t changes = 1 + random.below(8); changes > 0 && !bytes.empty(); --changes) {
    const auto size = static_cast<std::uint32_t>(bytes.size());
    // Half of the changes go to the header, where they matter most.
    const std::uint32_t at = random.below(2) == 0 ? random.below(std::min(size, 160U)) : random.below(size);
    const auto begin = bytes.begin() + at;
    const auto end = begin + random.below(std::min(size - at, 64U)) + 1;
    switch (random.below(6)) {
      case 0: *begin = static_cast<std::uint8_t>(random.next()); break;
      case 1: *begin ^= static_cast<std::uint8_t>(1U << random.below(8)); break;
      case 2: *begin = interesting[random.below(sizeof interesting)]; break;
      case 3: bytes.erase(begin, end); break;
      case 4: {
        const Bytes copy(begin, end);
        bytes.insert(end, copy.begin(), copy.end());
        break;
      }
      default: bytes.resize(at); break;
    }
  }
  return bytes;
}

template <typename Parse>
void check_survives(const std::string& what, const std::vector<Bytes>& corpus, std::uint64_t per_file, Parse parse) {
  constexpr std::uint64_t seed = 20261121;
  std::uint64_t refused = 0;
  for (std::uint64_t file = 0; file < corpus.size(); ++file) {
    parse(corpus[file]);  // the unmutated file must be accepted
    for (std::uint64_t i = 0; i < per_file; ++i) {
      RandomStream random(seed, RandomPurpose::test, file * per_file + i);
      try {
        parse(mutate(corpus[file], random));
      } catch (const DataError&) {
        ++refused;
      } catch (const std::exception& error) {
        FAIL(what << " file " << file << ", mutation " << i << ", seed " << seed << ": " << error.what());
      }
    }
  }
  std::cout << what << ": " << refused << " of " << corpus.size() * per_file << " mutated files refused, seed " << seed
            << "\n";
  CHECK(refused > corpus.size() * per_file / 2);
}

}  // namespace

TEST_CASE("mutated IDX files are parsed or rejected", "[mutation]") {
  const Bytes images = idx({3, 9, 7}, counting(189));
  const Bytes labels = idx({40}, counting(40, 10));
  const std::vector<Bytes> corpus{images, labels, idx({2, 2, 2, 2}, counting(16)), gzip(images), gzip(labels)};
  check_survives("IDX", corpus, 4000, [](const Bytes& bytes) {
    const IdxArray array = parse_idx(as_bytes(bytes), "mutated");
    REQUIRE(static_cast<std::int64_t>(array.values.size()) == (array.values.empty() ? 0 : array.shape.elements()));
  });
}

TEST_CASE("mutated npz files are parsed or rejected", "[mutation]") {
  const Bytes inputs = npy(npy_dictionary("|u1", "(4, 5, 6)"), counting(120));
  const Bytes labels = npy(npy_dictionary("<i8", "(4,)"), bytes_of<std::int64_t>({1, 2, 3, 4}), 2);
  const std::vector<std::pair<std::string, Bytes>> members{{"x_train.npy", inputs}, {"y_train.npy", labels}};
  check_survives("npz", {zip_archive(members, false), zip_archive(members, true)}, 2000, [](const Bytes& bytes) {
    const NpzArchive archive(as_bytes(bytes), "mutated");
    for (const auto* key : {"x_train", "y_train"}) {
      const NpyArray array = archive.read(key);
      REQUIRE(array.bytes.size() % size_of(array.type) == 0);
    }
  });
  check_survives("npy header", {inputs, labels}, 4000, [](const Bytes& bytes) {
    const NpyHeader header = parse_npy_header(bytes, "mutated");
    REQUIRE(header.bytes <= bytes.size());
  });
}
