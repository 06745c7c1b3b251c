// IDX files round-trip, plain and gzipped. Every kind of damage is rejected with its offset and a remedy.
#include "data/idx.hpp"

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/core/error.hpp>

#include <cstdint>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

void check_refused(const Bytes& bytes, const std::string& words) {
  const std::string message = message_of<DataError>([&] { (void)parse_idx(as_bytes(bytes), "some-file"); });
  CHECK(lacking(message, {"some-file", words}) == "");
}

Bytes with(Bytes bytes, std::size_t at, std::uint8_t value) {
  bytes.at(at) = value;
  return bytes;
}

Bytes cut(Bytes bytes, std::size_t size) {
  bytes.resize(size);
  return bytes;
}

}  // namespace

TEST_CASE("IDX arrays of every rank round-trip", "[idx]") {
  const std::vector<std::vector<std::uint32_t>> shapes{{1},
                                                       {10},
                                                       {0},
                                                       {4, 5},
                                                       {3, 28, 28},
                                                       {5, 7, 11},
                                                       {2, 3, 4, 5},
                                                       {1, 2, 1, 2, 1, 2, 1, 2},
                                                       {0, 4294967295, 4294967295}};
  for (const auto& extents : shapes) {
    std::size_t count = 1;
    for (const auto extent : extents) count *= extent;
    const Bytes values = counting(count);
    const Bytes plain = idx(extents, values);
    for (const Bytes& file : {plain, gzip(plain)}) {
      const IdxArray array = parse_idx(as_bytes(file), "some-file");
      CHECK(array.shape == Shape(std::vector<std::int64_t>(extents.begin(), extents.end())));
      CHECK(array.values == values);
    }
  }
}

TEST_CASE("gzip is recognized by its magic bytes in files and memory", "[idx]") {
  const testing::ScratchDirectory directory;
  const Bytes plain = idx({3, 4, 5}, counting(60));
  for (const auto* name : {"a", "a.gz"}) {
    for (const Bytes& file : {plain, gzip(plain)}) {
      write_file(directory.path() / name, file);
      CHECK(read_idx(directory.path() / name).values == counting(60));
    }
  }
}

TEST_CASE("a gzip file of several members is one stream", "[idx]") {
  const Bytes plain = idx({100}, counting(100));
  Bytes file = gzip(cut(plain, 31));
  const Bytes second = gzip(Bytes(plain.begin() + 31, plain.end()));
  file.insert(file.end(), second.begin(), second.end());
  CHECK(parse_idx(as_bytes(file), "some-file").values == counting(100));
}

TEST_CASE("damaged IDX headers are rejected", "[idx]") {
  const Bytes good = idx({2, 3, 4}, counting(24));
  check_refused({}, "ends at byte 0");
  check_refused(cut(good, 3), "ends at byte 3");
  check_refused(cut(good, 9), "within its header of 16 bytes");
  check_refused(with(good, 0, 1), "it begins with 01 00 08 03");
  check_refused(with(good, 1, 7), "00 00 08 03 for images");
  check_refused(with(good, 2, 0x0D), "00 00 0D 03");
  check_refused(with(good, 3, 0), "1 to 8 dimensions");
  check_refused(with(good, 3, 9), "1 to 8 dimensions");
  check_refused({'P', 'K', 3, 4, 0, 0}, "50 4B 03 04");
}

TEST_CASE("IDX sizes are checked against the file size", "[idx]") {
  const Bytes good = idx({2, 3, 4}, counting(24));
  check_refused(cut(good, good.size() - 1), "24 bytes at byte 16, but has 23");
  check_refused(cut(good, 16), "but has 0");
  check_refused(cut(good, good.size() + 1), "but has 25");
  check_refused(with(good, 7, 3), "declares an array (3, 3, 4) of 36 bytes");
  check_refused(with(good, 4, 1), "declares an array (16777218, 3, 4)");
  check_refused(idx({4294967295, 4294967295, 4294967295}, {}), "more than the limit of 1073741824 bytes");
  check_refused(idx({65536, 65536, 65536, 65536}, {}),
                "more than the limit of 1073741824 bytes");  // 2^64 is 0 in 64 bits
  check_refused(idx({0, 3}, {1}), "but has 1");
}

TEST_CASE("damaged gzip streams are rejected", "[idx]") {
  const Bytes plain = idx({50, 28, 28}, counting(50 * 28 * 28, 17));
  const Bytes good = gzip(plain);
  for (const std::size_t size :
       {std::size_t{2}, std::size_t{9}, std::size_t{12}, good.size() / 2, good.size() - 8, good.size() - 1}) {
    check_refused(cut(good, size), "cut short");
  }
  Bytes damaged = good;
  damaged[good.size() - 6] ^= 1U;  // in the checksum
  check_refused(damaged, "incorrect data check");
  damaged = good;
  for (std::size_t at = 10; at < 40; ++at) damaged[at] = 0xFF;
  check_refused(damaged, "is damaged");
  check_refused(with(good, 2, 99), "is damaged");
  damaged = good;
  damaged.push_back('x');
  check_refused(damaged, "1 bytes that are not gzip after its stream");
  check_refused(gzip(cut(plain, plain.size() - 1)), "but has 39199");
  check_refused(gzip(cut(plain, plain.size() + 1)), "but has more");
  check_refused(gzip({}), "ends at byte 0");
  check_refused(gzip(cut(plain, 10)), "within its header");
}

TEST_CASE("a small gzip file cannot claim a gigabyte of memory", "[idx]") {
  check_refused(gzip(idx({1073741824}, counting(100))), "room for at most");
  check_refused(gzip(idx({1073741825}, {})), "more than the limit of 1073741824 bytes");
}

TEST_CASE("unreadable files are named", "[idx]") {
  const testing::ScratchDirectory directory;
  const auto absent = directory.path() / "absent";
  CHECK(lacking(message_of<UsageError>([&] { (void)read_idx(absent); }), {absent.string(), "No such file"}) == "");
  CHECK(lacking(message_of<IoError>([&] { (void)read_idx(directory.path()); }), {"not a regular file"}) == "");
  for (const std::size_t size : {0, 3, 9, 39}) {
    write_file(directory.path() / "short", cut(idx({2, 3, 4}, counting(24)), size));
    CHECK(lacking(message_of<DataError>([&] { (void)read_idx(directory.path() / "short"); }), {"short"}) == "");
  }
}
