// The digest that files and workers are compared by: what it must tell apart, and that it stays what it is.
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

TEST_CASE("a digest tells lengths, places and single bits apart") {
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

TEST_CASE("files hold digests, so they do not change from version to version") {
  const std::vector<unsigned char> bytes{'l', 'o', 'c', 'k', 's', 't', 'e', 'p'};
  CHECK(digest_of(bytes) == "1ff4ace5d684bfb3");
  Digest same;
  same.add(bytes.data(), bytes.size());
  CHECK(same.to_string() == digest_of(bytes));
  same.add(bytes.data(), 0);
  CHECK(same.to_string() != digest_of(bytes));
}
