// See npy.hpp. Parses the Python dictionary in a .npy header, which holds a string, a boolean and a tuple.
#include "data/npy.hpp"

#include "data/sequential_file.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
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
constexpr std::array<NamedType, 12> types{{{NpyType::b1, "|b1", 1},
                                           {NpyType::i1, "|i1", 1},
                                           {NpyType::u1, "|u1", 1},
                                           {NpyType::i2, "<i2", 2},
                                           {NpyType::u2, "<u2", 2},
                                           {NpyType::i4, "<i4", 4},
                                           {NpyType::u4, "<u4", 4},
                                           {NpyType::i8, "<i8", 8},
                                           {NpyType::u8, "<u8", 8},
                                           {NpyType::f2, "<f2", 2},
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
    case 'S':
      return "make numbers of texts: numerals with .astype('float32'), labels with classes = sorted(set(y_train)) and "
             "[classes.index(label) for label in y]";
    case 'O':
      return "make one array of numbers: of texts, class indices with classes = sorted(set(y_train)) and "
             "[classes.index(label) for label in y]; of arrays of one shape, numpy.stack (resize or pad others first)";
    case 'c': return "save its real part, x.real, or its magnitude, numpy.abs(x)";
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
    if (!type_ || !is_fortran_order_ || !shape_) fail("a header with 'descr', 'fortran_order' and 'shape'");
    return {.type = *type_,
            .shape = *shape_,
            .bytes = 0,
            .payload = 0,
            .is_big_endian = is_big_endian_,
            .is_fortran_order = *is_fortran_order_};
  }

 private:
  void parse_entry() {
    const std::string_view key = parse_string();
    expect(':');
    if (key == "descr" && !type_) {
      parse_type();
    } else if (key == "fortran_order" && !is_fortran_order_) {
      skip_space();
      is_fortran_order_ = text_.substr(at_).starts_with("True");
      const std::string_view word = *is_fortran_order_ ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) fail("True or False");
      at_ += word.size();
    } else if (key == "shape" && !shape_) {
      parse_shape();
    } else {
      fail("each of the keys 'descr', 'fortran_order' and 'shape' once");
    }
  }

  void parse_type() {
    skip_space();
    if (text_.substr(at_).starts_with('[')) {
      throw DataError(name_ +
                      " is a structured array; make one array of its fields: "
                      "numpy.lib.recfunctions.structured_to_unstructured(x)");
    }
    const std::string_view descr = parse_string();
    is_big_endian_ = descr.starts_with('>');
    for (const NamedType& known : types) {
      const std::string_view kind = std::string_view(known.descr).substr(1);
      if (descr == known.descr || (is_big_endian_ && descr.substr(1) == kind)) type_ = known.type;
    }
    if (type_) return;
    throw DataError(
        fmt::format("{} holds values of type '{}', but the supported types are booleans, integers and floats of up to "
                    "64 bits; {}",
                    name_, descr.substr(0, 16), remedy_for(descr)));
  }

  void parse_shape() {
    std::vector<std::int64_t> extents;
    expect('(');
    while (!accept(')')) {
      if (extents.size() == max_rank)
        throw DataError(fmt::format("{} has more than {} dimensions; reshape it", name_, max_rank));
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
      if (value > static_cast<std::int64_t>(max_file_bytes)) fail("a dimension of at most 2^40");
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
  bool is_big_endian_ = false;
  std::optional<bool> is_fortran_order_;
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
                    "write the file again with {}",
                    name, name.find(".npz") == std::string::npos ? "numpy.save" : "numpy.savez"));
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
    const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(extent, 1));
    payload = payload > max_file_bytes / factor ? max_file_bytes + 1 : payload * factor;
  }
  if (payload > max_file_bytes && !empty) {
    throw DataError(
        fmt::format("{} declares an array {} of '{}', more than the limit of {} bytes; check "
                    "that it is the right file",
                    name, header.shape.to_string(), descr_of(header.type), max_file_bytes));
  }
  header.payload = empty ? 0 : static_cast<std::size_t>(payload);
  return header;
}

namespace {

/// Copies the array at `from` with its last axis outermost into row-major order.
void to_row_major(const Shape& shape, std::size_t size, const std::vector<std::uint8_t>& from,
                  std::vector<std::uint8_t>& to) {
  const auto extents = shape.extents();
  std::vector<std::size_t> strides(extents.size());  // in `from`, in elements
  std::size_t stride = 1;
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    strides[axis] = stride;
    stride *= static_cast<std::size_t>(extents[axis]);
  }
  std::vector<std::int64_t> index(extents.size());
  std::size_t source = 0;
  for (std::size_t element = 0; element * size < to.size(); ++element) {
    std::memcpy(to.data() + element * size, from.data() + source * size, size);
    for (std::size_t axis = extents.size(); axis-- > 0;) {
      source += strides[axis];
      if (++index[axis] < extents[axis]) break;
      source -= strides[axis] * static_cast<std::size_t>(extents[axis]);
      index[axis] = 0;
    }
  }
}

/// IEEE 754's binary16.
float half_to_float(std::uint16_t half) {
  const int exponent = half >> 10U & 0x1FU;
  const auto fraction = static_cast<float>(half & 0x3FFU);
  const float sign = (half & 0x8000U) != 0 ? -1.0F : 1.0F;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent != 31) return sign * std::ldexp(1024.0F + fraction, exponent - 25);
  return fraction == 0 ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
}

template <typename From, typename To>
std::vector<To> convert(const std::vector<std::uint8_t>& bytes) {
  std::vector<To> values(bytes.size() / sizeof(From));
  for (std::size_t i = 0; i < values.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    values[i] = static_cast<To>(value);  // NOLINT(bugprone-signed-char-misuse): int8 is a number
  }
  return values;
}

template <typename To>
std::vector<To> convert_integers(const NpyArray& array) {
  switch (array.type) {
    case NpyType::i1: return convert<std::int8_t, To>(array.bytes);
    case NpyType::i2: return convert<std::int16_t, To>(array.bytes);
    case NpyType::u2: return convert<std::uint16_t, To>(array.bytes);
    case NpyType::i4: return convert<std::int32_t, To>(array.bytes);
    case NpyType::u4: return convert<std::uint32_t, To>(array.bytes);
    case NpyType::i8: return convert<std::int64_t, To>(array.bytes);
    case NpyType::u8: return convert<std::uint64_t, To>(array.bytes);
    default: return {array.bytes.begin(), array.bytes.end()};
  }
}

}  // namespace

NpyArray to_array(const NpyHeader& header, std::vector<std::uint8_t> bytes) {
  const std::size_t size = size_of(header.type);
  if (header.is_big_endian) {
    for (std::size_t i = 0; i + size <= bytes.size(); i += size) {
      std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                   bytes.begin() + static_cast<std::ptrdiff_t>(i + size));
    }
  }
  if (!header.is_fortran_order || header.shape.rank() < 2) return {header.type, header.shape, std::move(bytes)};
  std::vector<std::uint8_t> row_major(bytes.size());
  to_row_major(header.shape, size, bytes, row_major);
  return {header.type, header.shape, std::move(row_major)};
}

std::vector<float> to_floats(const NpyArray& array) {
  if (is_integer(array.type)) return convert_integers<float>(array);
  if (array.type == NpyType::f4) return convert<float, float>(array.bytes);
  if (array.type == NpyType::f8) return convert<double, float>(array.bytes);
  std::vector<float> values = convert<std::uint16_t, float>(array.bytes);
  std::ranges::transform(values, values.begin(),
                         [](float half) { return half_to_float(static_cast<std::uint16_t>(half)); });
  return values;
}

std::vector<std::int64_t> to_integers(const NpyArray& array) { return convert_integers<std::int64_t>(array); }

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
