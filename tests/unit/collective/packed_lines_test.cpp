#include "collective/packed_lines.hpp"
#include "core/random.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <cstddef>
#include <span>
#include <vector>

using namespace lockstep;

namespace {

std::vector<std::byte> packed(std::span<const std::byte> values, std::size_t line) {
  std::vector<std::byte> bytes(max_packed_bytes(values.size(), line));
  bytes.resize(pack_lines(values, line, bytes.data()));
  return bytes;
}

}  // namespace

TEST_CASE("lines of zeros are not packed", "[packed_lines]") {
  std::vector<float> values(5 * 16 + 3);  // the last line is short
  const std::size_t line = elements_per_line * sizeof(float);
  CHECK(packed(std::as_bytes(std::span(values)), line).size() == 1);
  values[17] = 1;
  values[31] = 2;
  CHECK(packed(std::as_bytes(std::span(values)), line).size() == 1 + line);
  values[82] = -0.0F;
  CHECK(packed(std::as_bytes(std::span(values)), line).size() == 1 + line + 3 * sizeof(float));
  CHECK(packed({}, line).empty());
}

TEST_CASE("packed lines are unpacked to the same bits", "[packed_lines]") {
  RandomStream random(1, RandomPurpose::test, 0);
  for (int round = 0; round < 200; ++round) {
    const std::size_t line = round % 2 == 0 ? 64 : 32;
    std::vector<std::byte> values(random.below(3000));
    for (std::size_t at = 0; at < values.size(); ++at) {
      if ((at / line) % 3 != 0 || round % 5 == 0) values[at] = static_cast<std::byte>(random.below(256));
    }
    std::vector<std::byte> unpacked(values.size(), std::byte{7});
    unpack_lines(packed(values, line), line, unpacked);
    REQUIRE(unpacked == values);
  }
}

TEST_CASE("bytes that are no packed lines are refused", "[packed_lines]") {
  std::vector<std::byte> values(640, std::byte{1});
  std::vector<std::byte> unpacked(values.size());
  const std::vector<std::byte> whole = packed(values, 64);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{2}, whole.size() - 1}) {
    CAPTURE(size);
    CHECK_THROWS_AS(unpack_lines(std::span(whole).first(size), 64, unpacked), InternalError);
  }
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  CHECK_THROWS_AS(unpack_lines(longer, 64, unpacked), InternalError);
}
