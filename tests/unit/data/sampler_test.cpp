// The order of examples depends only on (seed, pass), and a rank's slice of a batch only on (count, index, slices).
#include "data/sampler.hpp"

#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <new>
#include <numeric>
#include <set>
#include <span>
#include <vector>

namespace {

std::atomic<std::size_t> allocations{0};  // counted by the operators below

}  // namespace

// Replaces every form that Catch2 and the library use, so that memory is freed by the allocator that returned it. Not
// inlined, because GCC warns about free() of memory from new.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t& /*tag*/) noexcept { std::free(memory); }

using namespace lockstep;

namespace {

using Indices = std::vector<std::uint32_t>;

Indices read(Sampler& stream, std::uint64_t position, std::size_t count) {
  Indices indices(count);
  stream.read(position, indices);
  return indices;
}

Indices identity(std::size_t count) {
  Indices indices(count);
  std::iota(indices.begin(), indices.end(), 0U);
  return indices;
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

}  // namespace

TEST_CASE("slices are contiguous, complete and differ by at most one example", "[sampler]") {
  for (std::size_t count = 0; count <= 70; ++count) {
    for (std::size_t parts = 1; parts <= 20; ++parts) {
      std::size_t next = 0;
      std::size_t previous = count;
      for (std::size_t part = 0; part < parts; ++part) {
        const Range slice = slice_of(count, part, parts);
        REQUIRE(slice.begin == next);
        REQUIRE(slice.end >= slice.begin);
        REQUIRE(slice.size() <= previous);  // larger slices come first
        REQUIRE(slice.size() - count / parts <= 1);
        next = slice.end;
        previous = slice.size();
      }
      REQUIRE(next == count);
    }
  }
  CHECK(slice_of(10, 0, 3) == Range{0, 4});
  CHECK(slice_of(10, 2, 3) == Range{7, 10});
  CHECK_THROWS_AS(slice_of(10, 3, 3), InternalError);
  CHECK_THROWS_AS(slice_of(10, 0, 0), InternalError);
}

TEST_CASE("every pass is a different permutation", "[sampler]") {
  for (const std::size_t examples : {1, 2, 3, 10, 997}) {
    Sampler stream(examples, 42, true);
    CHECK(stream.examples() == examples);
    std::set<Indices> orders;
    for (std::uint64_t pass = 0; pass < 5; ++pass) {
      const Indices order = read(stream, pass * examples, examples);
      CHECK(sorted(order) == identity(examples));
      orders.insert(order);
    }
    if (examples >= 10) CHECK(orders.size() == 5);
  }
}

TEST_CASE("permutations are uniform", "[sampler]") {
  std::array<int, 24> seen{};
  for (std::uint64_t seed = 0; seed < 2400; ++seed) {
    Sampler stream(4, seed, true);
    const Indices order = read(stream, 0, 4);
    const auto first = order[0] * 6;
    Indices rest;
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (i != order[0]) rest.push_back(i);
    }
    const auto second = static_cast<std::uint32_t>(std::find(rest.begin(), rest.end(), order[1]) - rest.begin());
    const std::uint32_t third = order[2] > order[3] ? 1U : 0U;
    ++seen.at(first + second * 2 + third);
  }
  double chi_square = 0;
  for (const int count : seen) chi_square += (count - 100.0) * (count - 100.0) / 100.0;
  CHECK(chi_square < 49.7);  // 23 degrees of freedom: exceeded once in a thousand fair shuffles; the seeds are fixed
}

TEST_CASE("the order depends on the seed and is stable across versions", "[sampler]") {
  Sampler one(10, 1, true);
  Sampler two(10, 2, true);
  Sampler again(10, 1, true);
  CHECK(read(one, 0, 10) != read(two, 0, 10));
  CHECK(read(one, 0, 100) == read(again, 0, 100));
  // Backups hold a position and not the order: changing these values breaks resuming from existing backups.
  CHECK(read(one, 0, 10) == Indices{3, 4, 1, 7, 6, 5, 2, 9, 0, 8});
  CHECK(read(one, 10, 10) == Indices{8, 5, 2, 7, 0, 3, 9, 6, 4, 1});
}

TEST_CASE("the stream does not depend on how it is read", "[sampler]") {
  constexpr std::size_t examples = 101;
  constexpr std::size_t length = 1000;
  Sampler stream(examples, 7, true);
  const Indices whole = read(stream, 0, length);

  for (const std::size_t piece : {1, 2, 7, 100, 101, 102, 350}) {
    Sampler other(examples, 7, true);
    Indices pieces;
    for (std::size_t at = 0; at < length; at += piece) {
      const Indices part = read(other, at, std::min(piece, length - at));
      pieces.insert(pieces.end(), part.begin(), part.end());
    }
    CHECK(pieces == whole);
  }

  // Workers that read only their slices of each batch see, together, what one worker sees.
  for (const std::size_t workers : {1, 2, 3, 4, 7}) {
    Indices together(length);
    for (std::size_t worker = workers; worker-- > 0;) {
      Sampler other(examples, 7, true);
      for (std::size_t batch = 0; batch < length; batch += 40) {
        const Range slice = slice_of(40, worker, workers);
        other.read(batch + slice.begin, std::span(together).subspan(batch + slice.begin, slice.size()));
      }
    }
    CHECK(together == whole);
  }

  const Indices late = read(stream, 950, 50);  // then an earlier position
  CHECK(late == Indices(whole.begin() + 950, whole.end()));
  CHECK(read(stream, 0, 10) == Indices(whole.begin(), whole.begin() + 10));
}

TEST_CASE("a batch may be larger than the data", "[sampler]") {
  Sampler stream(3, 5, true);
  const Indices batch = read(stream, 0, 12);
  for (std::ptrdiff_t pass = 0; pass < 4; ++pass) {
    CHECK(sorted(Indices(batch.begin() + pass * 3, batch.begin() + pass * 3 + 3)) == identity(3));
  }
  Sampler single(1, 5, true);
  CHECK(read(single, 99, 4) == Indices{0, 0, 0, 0});
}

TEST_CASE("without shuffling every pass is in order", "[sampler]") {
  Sampler stream(5, 9, false);
  CHECK(read(stream, 3, 9) == Indices{3, 4, 0, 1, 2, 3, 4, 0, 1});
}

TEST_CASE("distant positions are reached in constant time", "[sampler]") {
  Sampler stream(60000, 1, true);
  const std::uint64_t far = std::uint64_t{60000} * 5000000000U;  // pass numbers beyond 32 bits
  const Indices order = read(stream, far, 60000);
  CHECK(sorted(order) == identity(60000));
  CHECK(order != read(stream, far - 60000, 60000));
}

TEST_CASE("too many examples for 32-bit indices are rejected", "[sampler]") {
  CHECK_THROWS_AS(Sampler(0, 1, true), UsageError);
  CHECK_THROWS_AS(Sampler(std::size_t{1} << 32U, 1, false), UsageError);
}

TEST_CASE("sampling allocates nothing and is fast", "[sampler]") {
  Sampler stream(60000, 3, true);
  Indices indices(128);
  const std::size_t before = allocations;
  const auto start = std::chrono::steady_clock::now();
  constexpr std::uint64_t passes = 20;
  for (std::uint64_t position = 0; position < passes * 60000; position += 128) stream.read(position, indices);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  CHECK(allocations == before);
  std::cout << "a pass of 60,000 indices takes " << time.count() / passes << " ms\n";
}
