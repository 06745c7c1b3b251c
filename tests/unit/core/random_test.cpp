// Random numbers: Philox against its authors' test vectors, and the distributions drawn from it.
#include "core/random.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

using namespace lockstep;

TEST_CASE("Philox matches its published test vectors", "[random]") {
  // From Random123's kat_vectors for philox4x32 with ten rounds.
  CHECK(philox4x32({0, 0, 0, 0}, 0) == Philox4{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
  CHECK(philox4x32({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, 0xFFFFFFFFFFFFFFFF) ==
        Philox4{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
  CHECK(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, 0x299F31D0A4093822) ==
        Philox4{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1});
}

TEST_CASE("random streams differ by seed, purpose and subject and are reproducible", "[random]") {
  const auto first = [](std::uint64_t seed, RandomPurpose purpose, std::uint64_t subject) {
    return RandomStream(seed, purpose, subject).next();
  };
  const std::uint32_t one = first(1, RandomPurpose::test, 7);
  CHECK(one == first(1, RandomPurpose::test, 7));
  CHECK(one != first(2, RandomPurpose::test, 7));
  CHECK(one != first(1, RandomPurpose::shuffle, 7));
  CHECK(one != first(1, RandomPurpose::test, 8));
  CHECK(one != first(1, RandomPurpose::test, 7 + (std::uint64_t{1} << 32U)));
}

TEST_CASE("uniform numbers fill [0, 1) and bounded ones their range", "[random]") {
  RandomStream random(11, RandomPurpose::test, 0);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const float value = random.uniform();
    REQUIRE((value >= 0.0F && value < 1.0F));
    sum += value;
  }
  CHECK(sum / 100000 == Approx(0.5).margin(0.005));
  CHECK(to_unit_float(0xFFFFFFFF) < 1.0F);

  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts.at(random.below(7));
  CHECK(*std::min_element(counts.begin(), counts.end()) > 9600);
  CHECK(*std::max_element(counts.begin(), counts.end()) < 10400);
  for (int i = 0; i < 100; ++i) REQUIRE(random.below(1) == 0);
}

TEST_CASE("normal numbers have the moments and tails of the distribution", "[random]") {
  constexpr int count = 200000;
  RandomStream random(5, RandomPurpose::test, 1);
  double mean = 0;
  double square = 0;
  double cube = 0;
  double fourth = 0;
  int beyond_two = 0;
  for (int i = 0; i < count; ++i) {
    const double value = random.normal();
    REQUIRE(std::isfinite(value));
    mean += value / count;
    square += value * value / count;
    cube += value * value * value / count;
    fourth += value * value * value * value / count;
    beyond_two += std::abs(value) > 2.0 ? 1 : 0;
  }
  CHECK(mean == Approx(0.0).margin(0.01));
  CHECK(square == Approx(1.0).margin(0.02));
  CHECK(cube == Approx(0.0).margin(0.05));
  CHECK(fourth == Approx(3.0).margin(0.1));
  CHECK(static_cast<double>(beyond_two) / count == Approx(0.0455).margin(0.002));
}
