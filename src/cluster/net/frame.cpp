// See frame.hpp.
#include "cluster/net/frame.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace lockstep {

namespace {

constexpr std::size_t header_bytes = 12;

template <typename Integer>
void append(std::string& text, Integer value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    text += static_cast<char>(static_cast<unsigned char>(value >> (8 * byte)));
  }
}

template <typename Integer>
Integer integer_at(std::string_view text) {
  Integer value = 0;
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    value |= static_cast<Integer>(static_cast<Integer>(static_cast<unsigned char>(text[byte])) << (8 * byte));
  }
  return value;
}

}  // namespace

std::string encode(const Frame& frame) { return encode(frame, 0); }

std::string encode(const Frame& frame, std::size_t rest_bytes) {
  const std::size_t body_bytes = frame.body.size() + rest_bytes;
  if (body_bytes > std::numeric_limits<std::uint32_t>::max()) {
    throw InternalError(fmt::format("a message of {} bytes is too long for a frame", body_bytes));
  }
  std::string bytes(frame_magic);
  bytes.reserve(header_bytes + frame.body.size());
  append(bytes, frame_version);
  append(bytes, frame.kind);
  append(bytes, static_cast<std::uint32_t>(body_bytes));
  bytes += frame.body;
  return bytes;
}

void FrameReader::add(std::span<const std::byte> bytes) {
  if (consumed_bytes_ > 0) {
    buffer_.erase(0, consumed_bytes_);
    consumed_bytes_ = 0;
  }
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check_header();
}

void FrameReader::check_header() const {
  const std::string_view rest = std::string_view(buffer_).substr(consumed_bytes_);
  const std::size_t known = std::min(rest.size(), frame_magic.size());
  if (rest.substr(0, known) != frame_magic.substr(0, known)) throw DataError("it does not speak the Lockstep protocol");
  if (rest.size() < header_bytes) return;
  const auto version = integer_at<std::uint16_t>(rest.substr(4));
  if (version != frame_version) {
    throw DataError(
        fmt::format("it speaks version {} of the Lockstep protocol, this is version {}", version, frame_version));
  }
  const auto length = integer_at<std::uint32_t>(rest.substr(8));
  if (length > max_message_bytes_) {
    throw DataError(fmt::format("it announces a message of {} bytes; the limit is {}", length, max_message_bytes_));
  }
}

std::optional<Frame> FrameReader::next(const Placer& placer) {
  if (placed_.bytes > 0) {
    if (placed_.received < placed_.bytes) return std::nullopt;
    return std::exchange(placed_, {}).frame;
  }
  const std::string_view rest = std::string_view(buffer_).substr(consumed_bytes_);
  if (rest.size() < header_bytes) return std::nullopt;
  check_header();
  const auto length = integer_at<std::uint32_t>(rest.substr(8));
  const auto kind = integer_at<std::uint16_t>(rest.substr(6));
  const std::string_view body = rest.substr(header_bytes, length);
  if (body.size() < length) {
    if (placer.find && body.size() >= placer.beginning_bytes) place(placer, kind, body, length);
    return std::nullopt;
  }
  consumed_bytes_ += header_bytes + length;
  return Frame{kind, std::string(body)};
}

void FrameReader::place(const Placer& placer, std::uint16_t kind, std::string_view body, std::size_t length) {
  const std::string_view beginning = body.substr(0, placer.beginning_bytes);
  Places places = placer.find(kind, beginning);
  std::size_t bytes = 0;
  for (const std::span<std::byte> place : places) bytes += place.size();
  if (bytes != length - beginning.size()) return;
  placed_.frame.kind = kind;
  placed_.frame.body = beginning;
  placed_.frame.is_placed = true;
  placed_.places = std::move(places);
  placed_.bytes = bytes;
  body.remove_prefix(beginning.size());
  for (const std::span<std::byte> place : missing()) {
    const std::size_t buffered = std::min(place.size(), body.size());
    std::copy_n(std::as_bytes(std::span(body)).begin(), buffered, place.begin());
    body.remove_prefix(buffered);
    filled(buffered);
  }
  buffer_.clear();
  consumed_bytes_ = 0;
}

Places FrameReader::missing() const {
  Places missing;
  if (placed_.bytes == 0) return missing;
  std::size_t skipped = placed_.received;
  for (const std::span<std::byte> place : placed_.places) {
    const std::size_t bytes = std::min(skipped, place.size());
    if (bytes < place.size()) missing.push_back(place.subspan(bytes));
    skipped -= bytes;
  }
  return missing;
}

void FrameReader::filled(std::size_t bytes) { placed_.received += bytes; }

void FrameReader::forget_places() {
  if (placed_.bytes == 0) return;
  std::string bytes = encode(placed_.frame, placed_.bytes);
  std::size_t rest = placed_.received;
  for (const std::span<std::byte> place : placed_.places) {
    const std::span<std::byte> received = place.first(std::min(rest, place.size()));
    bytes.append(reinterpret_cast<const char*>(received.data()), received.size());
    rest -= received.size();
  }
  placed_ = {};
  buffer_.replace(0, consumed_bytes_, bytes);
  consumed_bytes_ = 0;
}

BodyWriter& BodyWriter::number(std::uint64_t value) {
  append(body_, value);
  return *this;
}

BodyWriter& BodyWriter::text(const std::string& value) {
  append(body_, std::uint64_t{value.size()});
  body_ += value;
  return *this;
}

BodyWriter& BodyWriter::rest(std::span<const std::byte> bytes) {
  body_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return *this;
}

std::uint64_t BodyReader::number() {
  if (rest_.size() < sizeof(std::uint64_t)) throw DataError("a message is truncated");
  const auto value = integer_at<std::uint64_t>(rest_);
  rest_.remove_prefix(sizeof value);
  return value;
}

std::string BodyReader::text() {
  const std::uint64_t size = number();
  if (size > rest_.size()) throw DataError("a message is truncated");
  std::string value(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return value;
}

std::size_t BodyReader::count(std::size_t bytes_each) {
  const std::uint64_t value = number();
  if (value > rest_.size() / std::max<std::size_t>(bytes_each, 1))
    throw DataError("a message announces more elements than it holds");
  return value;
}

void BodyReader::finish() const {
  if (!rest_.empty()) throw DataError("a message has trailing bytes");
}

}  // namespace lockstep
