// See frame.hpp.
#include "cluster/frame.hpp"

#include <lockstep/core/error.hpp>

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

std::string encode(const Frame& frame) {
  if (frame.body.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw InternalError("a message of " + std::to_string(frame.body.size()) + " bytes is too long");
  }
  std::string bytes(frame_magic);
  bytes.reserve(header_bytes + frame.body.size());
  append(bytes, frame_version);
  append(bytes, frame.kind);
  append(bytes, static_cast<std::uint32_t>(frame.body.size()));
  return bytes + frame.body;
}

void FrameReader::add(std::span<const std::byte> bytes) {
  if (taken_ > 0) {
    waiting_.erase(0, taken_);
    taken_ = 0;
  }
  waiting_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check_header();
}

void FrameReader::check_header() const {
  const std::string_view rest = std::string_view(waiting_).substr(taken_);
  const std::size_t known = std::min(rest.size(), frame_magic.size());
  if (rest.substr(0, known) != frame_magic.substr(0, known)) throw DataError("it does not speak Lockstep's language");
  if (rest.size() < header_bytes) return;
  const auto version = integer_at<std::uint16_t>(rest.substr(4));
  if (version != frame_version) {
    throw DataError("it speaks version " + std::to_string(version) + " of Lockstep's language, this is version " +
                    std::to_string(frame_version));
  }
  const auto length = integer_at<std::uint32_t>(rest.substr(8));
  if (length > longest_) {
    throw DataError("it announces a message of " + std::to_string(length) + " bytes, at most " +
                    std::to_string(longest_) + " are allowed");
  }
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(waiting_).substr(taken_);
  if (rest.size() < header_bytes) return std::nullopt;
  check_header();
  const auto length = integer_at<std::uint32_t>(rest.substr(8));
  if (rest.size() - header_bytes < length) return std::nullopt;
  Frame frame{integer_at<std::uint16_t>(rest.substr(6)), std::string(rest.substr(header_bytes, length))};
  taken_ += header_bytes + length;
  return frame;
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

std::uint64_t BodyReader::number() {
  if (rest_.size() < sizeof(std::uint64_t)) throw DataError("a message ends too early");
  const auto value = integer_at<std::uint64_t>(rest_);
  rest_.remove_prefix(sizeof value);
  return value;
}

std::string BodyReader::text() {
  const std::uint64_t size = number();
  if (size > rest_.size()) throw DataError("a message ends too early");
  std::string value(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return value;
}

std::size_t BodyReader::count(std::size_t bytes_each) {
  const std::uint64_t value = number();
  if (value > rest_.size() / std::max<std::size_t>(bytes_each, 1))
    throw DataError("a message counts more than it holds");
  return value;
}

void BodyReader::finish() const {
  if (!rest_.empty()) throw DataError("a message is longer than it should be");
}

}  // namespace lockstep
