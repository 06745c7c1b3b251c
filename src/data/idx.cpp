// See idx.hpp. Sizes in the header are checked against the file before memory is allocated.
#include "data/idx.hpp"

#include "core/deflate.hpp"
#include "data/gzip.hpp"
#include "data/sequential_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {

namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::size_t magic_bytes = 4;
constexpr std::size_t max_rank = 8;
constexpr std::size_t max_header_bytes = magic_bytes + 4 * max_rank;
constexpr std::uint8_t type_u8 = 0x08;

struct Header {
  Shape shape;
  std::size_t bytes = 0;    ///< of the header itself
  std::size_t payload = 0;  ///< bytes of the array
};

/// Validates the magic number in the first four bytes of `start` and returns the header's length in bytes.
std::size_t header_bytes(Bytes start, const std::string& name) {
  if (start.size() < magic_bytes) {
    throw DataError(fmt::format("{} ends at byte {}, within the first 4 bytes of an IDX file; fetch the file again",
                                name, start.size()));
  }
  if (start[0] != 0 || start[1] != 0 || start[2] != type_u8 || start[3] == 0 || start[3] > max_rank) {
    throw DataError(
        fmt::format("{} is not an IDX file of bytes: it begins with {:02X}, not 00 00 08 and 1 to 8 "
                    "dimensions (00 00 08 03 for images, 00 00 08 01 for labels); give the original file",
                    name, fmt::join(start.first(magic_bytes), " ")));
  }
  return magic_bytes + 4 * std::size_t{start[3]};
}

/// `start` holds the whole header, or all bytes of a shorter file.
Header parse_header(Bytes start, const std::string& name) {
  Header header{.shape = {}, .bytes = header_bytes(start, name), .payload = 1};
  if (start.size() < header.bytes) {
    throw DataError(fmt::format("{} ends at byte {}, within its header of {} bytes; fetch the file again", name,
                                start.size(), header.bytes));
  }
  std::vector<std::int64_t> extents;
  std::uint64_t payload = 1;
  bool empty = false;
  for (std::size_t at = magic_bytes; at < header.bytes; at += 4) {
    const std::uint32_t extent = std::uint32_t{start[at]} << 24U | std::uint32_t{start[at + 1]} << 16U |
                                 std::uint32_t{start[at + 2]} << 8U | std::uint32_t{start[at + 3]};
    extents.push_back(extent);
    empty = empty || extent == 0;
    payload = std::min(payload, max_data_bytes + 1) * std::max(extent, 1U);  // at most 2^30 * 2^32: no overflow
  }
  header.shape = Shape(std::move(extents));
  if (payload > max_data_bytes && !empty) {
    throw DataError(
        fmt::format("{} declares an array {} at byte 4, more than the limit of {} bytes; check "
                    "that it is the right file",
                    name, header.shape.to_string(), max_data_bytes));
  }
  header.payload = empty ? 0 : static_cast<std::size_t>(payload);
  return header;
}

[[noreturn]] void throw_wrong_size(const std::string& name, const Header& header, const std::string& found) {
  throw DataError(fmt::format("{} declares an array {} of {} bytes at byte {}, but has {}; fetch the file again", name,
                              header.shape.to_string(), header.payload, header.bytes, found));
}

IdxArray parse_gzip(Bytes file, const std::string& name) {
  GzipReader reader(file, name);
  std::array<std::uint8_t, max_header_bytes> start{};
  std::size_t known = reader.read(std::span(start).first(magic_bytes));
  const std::size_t wanted = header_bytes(Bytes(start).first(known), name);
  known += reader.read(std::span(start).subspan(magic_bytes, wanted - magic_bytes));
  const Header header = parse_header(Bytes(start).first(known), name);

  // A compressed file of this size cannot hold more. Checked before memory is allocated.
  const std::uint64_t possible = file.size() * max_deflate_ratio;
  if (header.payload > possible) {
    throw_wrong_size(name, header, fmt::format("room for at most {} in its gzip stream", possible));
  }
  IdxArray array{header.shape, std::vector<std::uint8_t>(header.payload)};
  const std::size_t found = reader.read(array.values);
  if (found < header.payload) throw_wrong_size(name, header, std::to_string(found));
  std::uint8_t one_more = 0;  // reading past the payload also verifies the stream's checksum
  if (reader.read(std::span(&one_more, 1)) != 0) throw_wrong_size(name, header, "more");
  return array;
}

void check_plain_size(const Header& header, std::uint64_t file_size, const std::string& name) {
  const std::uint64_t found = file_size - header.bytes;
  if (found != header.payload) throw_wrong_size(name, header, std::to_string(found));
}

}  // namespace

IdxArray parse_idx(std::span<const std::byte> file, const std::string& name) {
  const Bytes bytes(reinterpret_cast<const std::uint8_t*>(file.data()), file.size());
  if (is_gzip(bytes)) return parse_gzip(bytes, name);
  const Header header = parse_header(bytes.first(std::min(bytes.size(), max_header_bytes)), name);
  check_plain_size(header, bytes.size(), name);
  const Bytes payload = bytes.subspan(header.bytes);
  return {header.shape, std::vector<std::uint8_t>(payload.begin(), payload.end())};
}

IdxArray read_idx(const std::filesystem::path& path) {
  SequentialFile file(path);
  std::array<std::uint8_t, max_header_bytes> start{};
  std::size_t known = static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), magic_bytes));
  file.read(std::span(start).first(known));
  if (is_gzip(Bytes(start).first(known))) {
    const std::vector<std::uint8_t> bytes = read_whole_file(path);
    return parse_idx(std::as_bytes(std::span(bytes)), file.name());
  }
  // A plain file is read directly into the array.
  const std::size_t wanted = header_bytes(Bytes(start).first(known), file.name());
  const auto rest = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, file.size())) - known;
  file.read(std::span(start).subspan(known, rest));
  const Header header = parse_header(Bytes(start).first(known + rest), file.name());
  check_plain_size(header, file.size(), file.name());
  IdxArray array{header.shape, std::vector<std::uint8_t>(header.payload)};
  file.read(array.values);
  return array;
}

}  // namespace lockstep
