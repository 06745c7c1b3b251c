// Dropout's decisions: the definition both backends and the reference stand on.
#include "support/catch.hpp"

#include "core/dropout_mask.hpp"
#include "core/random.hpp"

#include <array>
#include <cmath>
#include <cstdint>

using namespace lockstep;

namespace {

double share_where_different(const DropoutMask& a, const DropoutMask& b) {
  int different = 0;
  for (std::uint32_t element = 0; element < 4000; ++element) different += a.keep(3, element) != b.keep(3, element);
  return different / 4000.0;
}

}  // namespace

TEST_CASE("A decision can be made at compile time, and four at once agree with one by one") {
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

TEST_CASE("Keeping is exactly a word's unit float against the rate") {
  // The mixed key is private, so the rule is seen through rates: all masks of one (seed, step, layer) share their
  // words.
  for (std::uint32_t element = 0; element < 200; ++element) {
    float low = 0;
    float high = 1;
    for (int i = 0; i < 30; ++i) {  // the largest rate at which the element is kept is its unit float
      const float middle = (low + high) / 2;
      (DropoutMask(5, 6, 7, middle).keep(8, element) ? low : high) = middle;
    }
    CHECK(DropoutMask(5, 6, 7, low).keep(8, element));
    CHECK(low * 0x1.0p24F == std::floor(low * 0x1.0p24F));
    if (low > 0) CHECK_FALSE(DropoutMask(5, 6, 7, std::nextafter(low, 2.0F)).keep(8, element));
  }
}

TEST_CASE("As many are dropped as the rate says, and every part of the name counts") {
  for (const float rate : {0.1F, 0.5F, 0.9F}) {
    const DropoutMask mask(1, 2, 3, rate);
    int kept = 0;
    for (std::uint32_t place = 0; place < 100; ++place) {
      for (std::uint32_t element = 0; element < 1000; ++element) kept += mask.keep(place, element);
    }
    CHECK(kept / 100000.0 == Approx(1 - rate).margin(5 * std::sqrt(rate * (1 - rate) / 100000)));
  }
  const DropoutMask mask(1, 2, 3, 0.5F);
  CHECK(share_where_different(mask, DropoutMask(1, 2, 3, 0.5F)) == 0);
  CHECK(share_where_different(mask, DropoutMask(2, 2, 3, 0.5F)) == Approx(0.5).margin(0.05));
  CHECK(share_where_different(mask, DropoutMask(1, 3, 3, 0.5F)) == Approx(0.5).margin(0.05));
  CHECK(share_where_different(mask, DropoutMask(1, 2, 4, 0.5F)) == Approx(0.5).margin(0.05));
  CHECK(share_where_different(mask, DropoutMask(1, 2 + (std::uint64_t{1} << 32U), 3, 0.5F)) ==
        Approx(0.5).margin(0.05));
  int different = 0;
  for (std::uint32_t element = 0; element < 4000; ++element)
    different += mask.keep(3, element) != mask.keep(4, element);
  CHECK(different / 4000.0 == Approx(0.5).margin(0.05));
}
