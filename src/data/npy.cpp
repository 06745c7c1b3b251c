// See npy.hpp. Parses the Python dictionary in a .npy header, which holds a string, a boolean and a tuple.
#include "data/npy.hpp"

#include "data/sequential_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t max_header_bytes = 16384;  // NumPy itself refuses headers of more than 10,000 bytes
constexpr std::size_t max_rank = 8;

struct NamedType {
  NpyType type;
  const char* descr;
  std::size_t size;
};
constexpr std::array<NamedType, 5> types{{{NpyType::u1, "|u1", 1},
                                          {NpyType::i4, "<i4", 4},
                                          {NpyType::i8, "<i8", 8},
                                          {NpyType::f4, "<f4", 4},
                                          {NpyType::f8, "<f8", 8}}};

const NamedType& entry(NpyType type) {
  return *std::find_if(types.begin(), types.end(), [=](const NamedType& known) { return known.type == type; });
}

/// How to save an array of an unsupported type.
const char* remedy_for(std::string_view descr) {
  const char kind = descr.size() < 2 ? '\0' : descr[1];
  switch (kind) {
    case 'U':
    case 'S': return "make class indices of texts with numpy.unique(y, return_inverse=True)[1]";
    case 'O': return "make one array of numbers with numpy.stack or numpy.array(..., dtype='float32')";
    case 'i':
    case 'u': return "save class indices with y.astype('int64'), and inputs with x.astype('float32')";
    default: return "save it with .astype('float32')";
  }
}

/// A recursive-descent parser of the dictionary. Errors name the offset in the file.
class Dictionary {
 public:
  Dictionary(std::string_view text, std::size_t offset, const std::string& name)
      : text_(text), offset_(offset), name_(name) {}

  NpyHeader parse() {
    expect('{');
    while (!accept('}')) {
      parse_entry();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("the end of the header");
    if (!type_ || !ordered_ || !shape_) fail("a header with 'descr', 'fortran_order' and 'shape'");
    return {.type = *type_, .shape = *shape_, .bytes = 0, .payload = 0};
  }

 private:
  void parse_entry() {
    const std::string_view key = parse_string();
    expect(':');
    if (key == "descr" && !type_) {
      parse_type();
    } else if (key == "fortran_order" && !ordered_) {
      skip_space();
      if (!text_.substr(at_).starts_with("False"))
        fail("False (an array in C order; save numpy.ascontiguousarray of it)");
      at_ += std::string_view("False").size();
      ordered_ = true;
    } else if (key == "shape" && !shape_) {
      parse_shape();
    } else {
      fail("each of the keys 'descr', 'fortran_order' and 'shape' once");
    }
  }

  void parse_type() {
    const std::string_view descr = parse_string();
    for (const NamedType& known : types) {
      if (descr == known.descr) type_ = known.type;
    }
    if (type_) return;
    throw DataError(
        fmt::format("{} holds values of type '{}', but the supported types are uint8, int32, int64, float32 "
                    "and float64; {}",
                    name_, descr.substr(0, 16), remedy_for(descr)));
  }

  void parse_shape() {
    std::vector<std::int64_t> extents;
    expect('(');
    while (!accept(')')) {
      if (extents.size() == max_rank) fail("at most 8 dimensions");
      extents.push_back(parse_extent());
      if (!accept(',')) {
        if (extents.size() == 1) fail("',' (it makes one dimension a tuple)");
        expect(')');
        break;
      }
    }
    shape_ = Shape(std::move(extents));
  }

  std::int64_t parse_extent() {
    skip_space();
    std::int64_t value = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value > static_cast<std::int64_t>(max_data_bytes)) fail("a dimension of at most 2^30");
    }
    if (at_ == begin) fail("a dimension");
    return value;
  }

  std::string_view parse_string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("a string in quotes");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a string that ends");
    const std::string_view content = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return content;
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  bool accept(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) fail(fmt::format("'{}'", wanted));
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw DataError(
        fmt::format("the NumPy header of {} is not supported at byte {}, where {} is expected; write the "
                    "file again with numpy.savez",
                    name_, offset_ + at_, expected));
  }

  std::string_view text_;
  std::size_t offset_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::optional<NpyType> type_;
  bool ordered_ = false;
  std::optional<Shape> shape_;
};

}  // namespace

std::size_t size_of(NpyType type) noexcept { return entry(type).size; }

const char* descr_of(NpyType type) noexcept { return entry(type).descr; }

std::size_t npy_header_bytes(std::span<const std::uint8_t> preamble, const std::string& name) {
  const bool matches = preamble.size() >= npy_preamble_bytes &&
                       std::equal(magic.begin(), magic.end(), preamble.begin(), [](char wanted, std::uint8_t byte) {
                         return static_cast<std::uint8_t>(wanted) == byte;
                       });
  if (!matches) {
    throw DataError(
        fmt::format("{} is not a NumPy array: it does not begin with \\x93NUMPY, a version and a length; "
                    "write the file again with numpy.savez",
                    name));
  }
  const std::uint8_t version = preamble[6];
  if (version < 1 || version > 3 || preamble[7] != 0) {
    throw DataError(
        fmt::format("{} uses version {}.{} of the .npy format; 1.0, 2.0 and 3.0 are supported; "
                    "write the file again with numpy.savez",
                    name, version, preamble[7]));
  }
  std::size_t length = std::size_t{preamble[8]} | std::size_t{preamble[9]} << 8U;
  if (version > 1) length |= std::size_t{preamble[10]} << 16U | std::size_t{preamble[11]} << 24U;
  const std::size_t bytes = (version > 1 ? 12 : 10) + length;
  if (bytes < npy_preamble_bytes || bytes > max_header_bytes) {
    throw DataError(
        fmt::format("{} declares a NumPy header of {} bytes at byte 8, where 2 to 16,372 are expected; write "
                    "the file again with numpy.savez",
                    name, length));
  }
  return bytes;
}

NpyHeader parse_npy_header(std::span<const std::uint8_t> start, const std::string& name) {
  const std::size_t bytes = npy_header_bytes(start.first(std::min(start.size(), npy_preamble_bytes)), name);
  if (start.size() < bytes) {
    throw DataError(fmt::format("{} ends at byte {}, within its NumPy header of {} bytes; fetch the file again", name,
                                start.size(), bytes));
  }
  const std::size_t begin = start[6] > 1 ? 12 : 10;
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + begin, bytes - begin);
  NpyHeader header = Dictionary(text, begin, name).parse();
  header.bytes = bytes;

  bool empty = false;
  std::uint64_t payload = size_of(header.type);
  for (const std::int64_t extent : header.shape.extents()) {
    empty = empty || extent == 0;
    payload = std::min(payload, max_data_bytes + 1) * static_cast<std::uint64_t>(std::max<std::int64_t>(extent, 1));
  }
  if (payload > max_data_bytes && !empty) {
    throw DataError(
        fmt::format("{} declares an array {} of '{}', more than the limit of {} bytes; check "
                    "that it is the right file",
                    name, header.shape.to_string(), descr_of(header.type), max_data_bytes));
  }
  header.payload = empty ? 0 : static_cast<std::size_t>(payload);
  return header;
}

std::vector<std::byte> to_npy(const Shape& shape, std::span<const float> values) {
  constexpr std::size_t alignment = 64;
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", shape.to_string());
  const std::size_t unpadded = magic.size() + 4 + text.size() + 1;
  text.append((alignment - unpadded % alignment) % alignment, ' ').push_back('\n');
  std::string start(magic);
  start += {'\x01', '\x00', static_cast<char>(text.size() % 256), static_cast<char>(text.size() / 256)};
  start += text;
  std::vector<std::byte> file(start.size() + values.size_bytes());
  std::memcpy(file.data(), start.data(), start.size());
  if (!values.empty()) std::memcpy(file.data() + start.size(), values.data(), values.size_bytes());
  return file;
}

}  // namespace lockstep
