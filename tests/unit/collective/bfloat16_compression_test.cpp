// bfloat16 compression against the definition of rounding to nearest even.
#include "collective/bfloat16_compression.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/random.hpp"
#include "support/catch.hpp"

using namespace lockstep;

namespace {

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// The nearest bfloat16 value; of two equally near ones, the one whose last bit is 0.
float nearest(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t below = bits & 0xFFFF0000U;
  const std::uint32_t rest = bits & 0xFFFFU;
  const bool up = rest > 0x8000U || (rest == 0x8000U && (below & 0x10000U) != 0);
  return from_bits(up ? below + 0x10000U : below);
}

}  // namespace

TEST_CASE("values are rounded to nearest even for every length") {
  RandomStream random(1, RandomPurpose::test, 0);
  for (std::size_t count = 0; count < 200; ++count) {
    std::vector<float> values(count);
    for (float& value : values) {
      do {
        const std::uint32_t half = random.below(0x10000U);
        const std::uint32_t rest = random.below(3) == 0 ? 0x8000U : random.below(0x10000U);
        value = from_bits(half << 16U | rest);
      } while (std::isnan(value));
    }
    std::vector<BFloat16> rounded(count + 1, BFloat16(7.0F));
    to_bfloat16(values.data(), rounded.data(), count);
    std::vector<float> wide(count + 1, 5.0F);
    from_bfloat16(rounded.data(), wide.data(), count);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      wrong += std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(nearest(values[i]));
    }
    REQUIRE(wrong == 0);
    REQUIRE(static_cast<float>(rounded[count]) == 7.0F);  // nothing is written beyond the end
    REQUIRE(wide[count] == 5.0F);
  }
}

TEST_CASE("NaN stays NaN and overflow becomes infinity") {
  const std::vector<float> values{std::numeric_limits<float>::quiet_NaN(), from_bits(0x7F800001U),
                                  from_bits(0xFFFFFFFFU), std::numeric_limits<float>::max(),
                                  -std::numeric_limits<float>::infinity()};
  std::vector<float> wide(values.size());
  std::vector<BFloat16> rounded(values.size());
  to_bfloat16(values.data(), rounded.data(), values.size());
  from_bfloat16(rounded.data(), wide.data(), values.size());
  REQUIRE(std::isnan(wide[0]));
  REQUIRE(std::isnan(wide[1]));
  REQUIRE(std::isnan(wide[2]));
  REQUIRE(wide[3] == std::numeric_limits<float>::infinity());
  REQUIRE(wide[4] == -std::numeric_limits<float>::infinity());
}
