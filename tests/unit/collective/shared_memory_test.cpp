// Memory that processes of a host map.
#include "collective/parameter_server/shared_memory.hpp"

#include "cluster/net/frame.hpp"
#include "support/catch.hpp"

#include <lockstep/core/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

using namespace lockstep;

TEST_CASE("memory is mapped by its handle, by tasks of the same host") {
  constexpr std::size_t size = 10'000;
  SharedMemory own(size);
  REQUIRE(own.bytes().size() == size);
  CHECK(std::ranges::all_of(own.bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
  const SharedMemory mapped(own.handle("a host"), "a host", size);
  REQUIRE_FALSE(mapped.is_empty());
  own.bytes()[7] = std::byte{42};
  CHECK(mapped.bytes()[7] == std::byte{42});
  CHECK(SharedMemory(own.handle("a host"), "another host", size).is_empty());
  CHECK(SharedMemory(own.handle("a host"), "a host", size + 1).is_empty());
  const std::string handle = own.handle("a host");
  own = SharedMemory();
  CHECK(SharedMemory(handle, "a host", size).is_empty());
  CHECK(mapped.bytes()[7] == std::byte{42});  // a mapping outlives its owner
}

TEST_CASE("a handle opens no other files") {
  const auto handle = [](std::uint64_t process, std::uint64_t descriptor, const std::string& name) {
    return BodyWriter().text("a host").number(process).number(descriptor).text(name).take();
  };
  const SharedMemory own(100);
  const auto self = static_cast<std::uint64_t>(getpid());
  for (const std::uint64_t descriptor : {0ULL, 1ULL, 1'000'000ULL, ~0ULL})
    CHECK(SharedMemory(handle(self, descriptor, "lockstep"), "a host", 100).is_empty());
  CHECK(SharedMemory(handle(~0ULL, 0, "lockstep"), "a host", 100).is_empty());
  CHECK_THROWS_AS(SharedMemory("short", "a host", 100), DataError);
  CHECK_THROWS_AS(SharedMemory(own.handle("a host") + "x", "a host", 100), DataError);
}
