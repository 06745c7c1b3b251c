// npz: valid and damaged NumPy headers and archives.
#include "data/npz.hpp"

#include "data/npy.hpp"
#include "support/catch.hpp"
#include "unit/data/data_files.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

NpyArray read_only_member(const Bytes& content, bool deflate = false) {
  const Bytes file = zip_archive({{"x_train.npy", content}}, deflate);
  return NpzArchive(as_bytes(file), "some.npz").read("x_train");
}

void check_member_refused(const Bytes& content, const std::string& words) {
  const std::string message = message_of<DataError>([&] { (void)read_only_member(content); });
  CHECK(lacking(message, {"some.npz:x_train.npy", words}) == "");
}

void check_header_refused(const std::string& dictionary, const std::string& words) {
  INFO(dictionary);
  check_member_refused(npy(dictionary, counting(6)), words);
}

void check_archive_refused(const Bytes& file, const std::string& words) {
  const std::string message =
      message_of<DataError>([&] { (void)NpzArchive(as_bytes(file), "some.npz").read("x_train"); });
  CHECK(lacking(message, {"some.npz", words}) == "");
}

}  // namespace

TEST_CASE("NumPy arrays of every type and version round-trip", "[npz]") {
  const std::vector<std::pair<std::string, NpyType>> types{
      {"|u1", NpyType::u1}, {"<i4", NpyType::i4}, {"<i8", NpyType::i8}, {"<f4", NpyType::f4}, {"<f8", NpyType::f8}};
  for (const auto& [descr, type] : types) {
    CHECK(descr_of(type) == descr);
    const Bytes values = counting(2 * 3 * size_of(type));
    for (const int version : {1, 2, 3}) {
      for (const bool deflate : {false, true}) {
        const NpyArray array = read_only_member(npy(npy_dictionary(descr, "(2, 3)"), values, version), deflate);
        CHECK(array.type == type);
        CHECK(array.shape == Shape{2, 3});
        CHECK(array.bytes == values);
      }
    }
  }
}

TEST_CASE("NumPy headers are accepted in every form that Python accepts", "[npz]") {
  const Bytes six = counting(6);
  CHECK(read_only_member(npy("{\"shape\":(6,),\"fortran_order\":False,\"descr\":\"|u1\"}", six)).shape == Shape{6});
  CHECK(read_only_member(npy("{ 'fortran_order' : False , 'shape' : ( 1 , 6 ) , 'descr' : '|u1' , }", six)).shape ==
        Shape{1, 6});
  CHECK(read_only_member(npy(npy_dictionary("|u1", "()"), {7})).shape == Shape{});
  CHECK(read_only_member(npy(npy_dictionary("<f8", "(0, 3)"), {})).bytes.empty());
}

TEST_CASE("all of NumPy's numbers become floats, and integers classes", "[npz]") {
  const auto floats = [](const char* descr, const Bytes& bytes) {
    return to_floats(read_only_member(npy(npy_dictionary(descr, "(2,)"), bytes)));
  };
  CHECK(floats("|b1", {0, 1}) == std::vector<float>{0, 1});
  CHECK(floats("|i1", {0xFF, 5}) == std::vector<float>{-1, 5});
  CHECK(floats("<i2", {0xFE, 0xFF, 1, 0}) == std::vector<float>{-2, 1});
  CHECK(floats(">i2", {0xFF, 0xFE, 0, 1}) == std::vector<float>{-2, 1});
  CHECK(floats("<u2", {0xFF, 0xFF, 1, 0}) == std::vector<float>{65535, 1});
  CHECK(floats("<u4", {0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0}) == std::vector<float>{4294967295.0F, 1});
  CHECK(floats(">f4", {0x3F, 0xC0, 0, 0, 0xC0, 0, 0, 0}) == std::vector<float>{1.5F, -2});
  CHECK(floats("<f2", {0x00, 0x3C, 0x01, 0x80}) == std::vector<float>{1, -std::ldexp(1.0F, -24)});
  CHECK(floats("<f2", {0x00, 0xFC, 0xFF, 0x7B}) == std::vector<float>{-std::numeric_limits<float>::infinity(), 65504});
  CHECK(to_integers(read_only_member(npy(npy_dictionary(">i4", "(1,)"), {0, 0, 1, 2}))) ==
        std::vector<std::int64_t>{258});
}

TEST_CASE("arrays in Fortran order are read in C order", "[npz]") {
  // numpy.arange(12).reshape(2, 3, 2) in Fortran order
  const Bytes columns{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11};
  const NpyArray array = read_only_member(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 2)}", columns));
  CHECK(array.bytes == counting(12));
  CHECK(array.shape == Shape{2, 3, 2});
}

TEST_CASE("two members of one name are refused", "[npz]") {
  const Bytes content = npy(npy_dictionary("|u1", "(6,)"), counting(6));
  const Bytes once = zip_archive({{"x_train.npy", content}, {"y_train.npy", content}}, false);
  Bytes twice = once;  // renames the second member in its header and in the directory
  const std::string from = "y_train.npy";
  for (auto at = twice.begin(); (at = std::search(at, twice.end(), from.begin(), from.end())) != twice.end();)
    *at = 'x';
  check_archive_refused(twice, "two members x_train.npy");
  check_archive_refused(zip_archive({{"x_train", content}, {"x_train.npy", content}}, false),
                        "two members x_train.npy");
}

TEST_CASE("unsupported NumPy headers are rejected", "[npz]") {
  check_header_refused(npy_dictionary("<c8", "(3,)"), "type '<c8', but the supported types");
  check_header_refused(npy_dictionary("<c8", "(3,)"), "its real part, x.real");
  check_header_refused(npy_dictionary("<f16", "(3,)"), "astype('float32')");
  check_header_refused(npy_dictionary(">i3", "(3,)"), "type '>i3'");
  check_header_refused(npy_dictionary("<U8", "(3,)"), "[classes.index(label) for label in y]");
  check_header_refused(npy_dictionary("|O", "(3,)"), "numpy.stack");
  check_header_refused("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (3,)}",
                       "is a structured array; make one array of its fields");
  check_header_refused("{'descr': '|u1', 'fortran_order': Maybe, 'shape': (2, 3)}", "True or False");
  check_header_refused("{'descr': '|u1', 'shape': (6,)}", "'descr', 'fortran_order' and 'shape'");
  check_header_refused("{'descr': '|u1', 'descr': '|u1', 'shape': (6,)}", "once");
  check_header_refused("{'descr': '|u1', 'fortran_order': False, 'shape': (6,), 'more': 1}", "once");
  check_header_refused("{'descr': '|u1', 'fortran_order': False, 'shape': (6,)} 1", "the end of the header");
  check_header_refused("{'descr': '|u1', 'fortran_order': False, 'shape': 6}", "'('");
  check_header_refused("{'descr': '|u1', 'fortran_order': False, 'shape': (6)}", "','");
  check_header_refused("{'descr': '|u1', 'fortran_order': False, 'shape': (-6,)}", "a dimension");
  check_header_refused("{'descr': '|u1', 'fortran_order': False, 'shape': (6", "','");
  check_header_refused("{'descr': '|u1", "a string that ends");
  check_header_refused("", "'{'");
  check_header_refused("{", "a string in quotes");
  check_header_refused(std::string(80, '\xFF'), "'{'");
  check_header_refused(npy_dictionary("|u1", "(99999999999999999999999999,)"), "at most 2^40");
  check_header_refused(npy_dictionary("|u1", "(1,1,1,1,1,1,1,1,1)"), "more than 8 dimensions; reshape it");
}

TEST_CASE("NumPy sizes are checked against the file size", "[npz]") {
  check_header_refused(npy_dictionary("|u1", "(7,)"), "7 bytes from byte");
  check_header_refused(npy_dictionary("|u1", "(5,)"), "5 bytes from byte");
  check_header_refused(npy_dictionary("<i8", "(6,)"), "48 bytes from byte");
  check_header_refused(npy_dictionary("<f8", "(1073741824, 1073741824, 1073741824)"),
                       "more than the limit of 1099511627776 bytes");
}

TEST_CASE("files that are not NumPy files are rejected", "[npz]") {
  const Bytes good = npy(npy_dictionary("|u1", "(6,)"), counting(6));
  check_member_refused({}, "does not begin with");
  check_member_refused(Bytes(good.begin(), good.begin() + 11), "does not begin with");
  check_member_refused(counting(100), "does not begin with");
  Bytes damaged = good;
  damaged[6] = 4;
  check_member_refused(damaged, "version 4.0");
  damaged = good;
  damaged[9] = 0xFF;  // a header of 65,000 bytes
  check_member_refused(damaged, "2 to 16,372");
  damaged[9] = 0x10;
  check_member_refused(damaged, "within its NumPy header");
  damaged[8] = damaged[9] = 0;
  check_member_refused(damaged, "2 to 16,372");
}

TEST_CASE("damaged archives are rejected", "[npz]") {
  const Bytes content = npy(npy_dictionary("|u1", "(5000,)"), counting(5000));
  check_archive_refused({}, "is empty");  // libzip reads it as an empty archive
  check_archive_refused(counting(1000), "not a zip archive");
  check_archive_refused(zip_archive({{"y_train.npy", content}}, true), "has no member x_train.npy");
  check_archive_refused(zip_archive({{"x_train", content}}, true), "has no member x_train.npy");

  const Bytes deflated = zip_archive({{"x_train.npy", content}}, true);
  check_archive_refused(Bytes(deflated.begin(), deflated.end() - 30), "cut short");
  Bytes damaged = deflated;
  for (std::size_t at = 100; at < 140; ++at) damaged[at] ^= 0x5AU;
  check_archive_refused(damaged, "damaged");

  Bytes stored = zip_archive({{"x_train.npy", content}}, false);
  stored[2000] ^= 1U;  // a value: only the checksum detects it
  check_archive_refused(stored, "damaged");
}

TEST_CASE("an impossible compression ratio is rejected before allocation", "[npz]") {
  const Bytes good = npy(npy_dictionary("|u1", "(1000000000,)"), counting(10));
  Bytes file = zip_archive({{"x_train.npy", good}}, false);
  // The central directory's entry: signature 50 4B 01 02, uncompressed size at its byte 24.
  for (std::size_t at = 0; at + 46 < file.size(); ++at) {
    if (file[at] == 0x50 && file[at + 1] == 0x4B && file[at + 2] == 1 && file[at + 3] == 2) {
      const std::uint32_t lie = 1000000128;
      for (std::size_t i = 0; i < 4; ++i) file[at + 24 + i] = static_cast<std::uint8_t>(lie >> (8 * i));
    }
  }
  check_archive_refused(file, "more than they can hold");
}

TEST_CASE("written arrays are valid NumPy files", "[npz]") {
  const std::vector<float> values{0.5F, -1.0F, 2.0F, 1e-3F, 7.0F, 3.0F};
  for (const Shape& shape : {Shape{6}, Shape{2, 3}, Shape{1, 1, 1, 6, 1, 1, 1, 1}, Shape{0, 9}}) {
    const auto count = static_cast<std::size_t>(shape.elements());
    const std::vector<std::byte> file = to_npy(shape, std::span(values).first(count));
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data());
    const NpyHeader header = parse_npy_header({bytes, file.size()}, "some.npy");
    CHECK(header.type == NpyType::f4);
    CHECK(header.shape == shape);
    CHECK(header.bytes % 64 == 0);
    REQUIRE(header.bytes + header.payload == file.size());
    CHECK(std::memcmp(file.data() + header.bytes, values.data(), header.payload) == 0);
  }
}
