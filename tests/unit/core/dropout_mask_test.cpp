// Dropout's mask, the definition that both backends and the reference implement.
#include "support/catch.hpp"

#include "core/dropout_mask.hpp"
#include "core/random.hpp"

#include <array>
#include <cmath>
#include <cstdint>

using namespace lockstep;

namespace {

double fraction_of_differences(const DropoutMask& a, const DropoutMask& b) {
  int different = 0;
  for (std::uint32_t element = 0; element < 4000; ++element) different += a.keep(3, element) != b.keep(3, element);
  return different / 4000.0;
}

}  // namespace

TEST_CASE("Dropout decisions are constexpr and vectorized ones agree with scalar ones") {
  constexpr DropoutMask mask(42, 7, 3, 0.25F);
  static_assert(mask.keep(0, 0) == mask.keep_four(0, 0)[0]);
  static_assert(DropoutMask(1, 2, 3, 0.0F).keep(4, 5));
  CHECK(mask.scale() == Approx(4.0 / 3));
  for (std::uint32_t quad = 0; quad < 100; ++quad) {
    const std::array<bool, 4> keep = mask.keep_four(9, quad);
    const std::array<float, 4> factors = mask.factors_four(9, quad);
    for (std::uint32_t i = 0; i < 4; ++i) {
      CHECK(keep[i] == mask.keep(9, 4 * quad + i));
      CHECK(factors[i] == (keep[i] ? mask.scale() : 0.0F));
    }
  }
}

TEST_CASE("an element is kept if its uniform float is at least the rate") {
  // The mixed key is private, so the test observes the rule through rates: all masks of one (seed, step, layer) share
  // their random words.
  for (std::uint32_t element = 0; element < 200; ++element) {
    float low = 0;
    float high = 1;
    for (int i = 0; i < 30; ++i) {  // bisects for the element's uniform float, the largest rate that keeps it
      const float middle = (low + high) / 2;
      (DropoutMask(5, 6, 7, middle).keep(8, element) ? low : high) = middle;
    }
    CHECK(DropoutMask(5, 6, 7, low).keep(8, element));
    CHECK(low * 0x1.0p24F == std::floor(low * 0x1.0p24F));
    if (low > 0) CHECK_FALSE(DropoutMask(5, 6, 7, std::nextafter(low, 2.0F)).keep(8, element));
  }
}

TEST_CASE("the dropped fraction matches the rate and every counter field matters") {
  for (const float rate : {0.1F, 0.5F, 0.9F}) {
    const DropoutMask mask(1, 2, 3, rate);
    int kept = 0;
    for (std::uint32_t place = 0; place < 100; ++place) {
      for (std::uint32_t element = 0; element < 1000; ++element) kept += mask.keep(place, element);
    }
    CHECK(kept / 100000.0 == Approx(1 - rate).margin(5 * std::sqrt(rate * (1 - rate) / 100000)));
  }
  const DropoutMask mask(1, 2, 3, 0.5F);
  CHECK(fraction_of_differences(mask, DropoutMask(1, 2, 3, 0.5F)) == 0);
  CHECK(fraction_of_differences(mask, DropoutMask(2, 2, 3, 0.5F)) == Approx(0.5).margin(0.05));
  CHECK(fraction_of_differences(mask, DropoutMask(1, 3, 3, 0.5F)) == Approx(0.5).margin(0.05));
  CHECK(fraction_of_differences(mask, DropoutMask(1, 2, 4, 0.5F)) == Approx(0.5).margin(0.05));
  CHECK(fraction_of_differences(mask, DropoutMask(1, 2 + (std::uint64_t{1} << 32U), 3, 0.5F)) ==
        Approx(0.5).margin(0.05));
  int different = 0;
  for (std::uint32_t element = 0; element < 4000; ++element)
    different += mask.keep(3, element) != mask.keep(4, element);
  CHECK(different / 4000.0 == Approx(0.5).margin(0.05));
}
