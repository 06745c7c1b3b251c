// The digest that compares files and workers: it detects changes, and its values are stable across versions.
#include "core/digest.hpp"

#include "support/catch.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <vector>

using lockstep::Digest;

namespace {

std::string digest_of(const std::vector<unsigned char>& bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return digest.to_string();
}

}  // namespace

TEST_CASE("a digest distinguishes lengths, positions and single bits") {
  std::set<std::string> seen;
  std::size_t count = 0;
  for (std::size_t size = 0; size <= 70; ++size) {
    std::vector<unsigned char> bytes(size, 0);
    seen.insert(digest_of(bytes));
    ++count;
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] = static_cast<unsigned char>(1U << (bit % 8));
      seen.insert(digest_of(bytes));
      bytes[bit / 8] = 0;
      ++count;
    }
  }
  CHECK(seen.size() == count);
}

TEST_CASE("FNV-1a matches its published test vectors") {
  CHECK(lockstep::fnv1a("") == 0xCBF29CE484222325U);
  CHECK(lockstep::fnv1a("a") == 0xAF63DC4C8601EC8CU);
  CHECK(lockstep::fnv1a("foobar") == 0x85944171F73967E8U);
  CHECK(lockstep::to_hex(0xAF63U) == "000000000000af63");
}

TEST_CASE("digests are stable across versions") {
  const std::vector<unsigned char> bytes{'l', 'o', 'c', 'k', 's', 't', 'e', 'p'};
  CHECK(digest_of(bytes) == "1ff4ace5d684bfb3");
  Digest same;
  same.add(bytes.data(), bytes.size());
  CHECK(same.to_string() == digest_of(bytes));
  same.add(bytes.data(), 0);
  CHECK(same.to_string() != digest_of(bytes));
}
