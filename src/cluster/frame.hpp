// Messages between launchers, and between a launcher and its PMIx server: a kind and a body behind a header that says
// how long they are. Whoever listens on a port hears strangers, so nothing is believed before it is checked.
//
//   magic "LSTP" | version u16 | kind u16 | length of the body u32 | body        all integers little-endian
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// Peers of other versions refuse each other.
constexpr std::uint16_t frame_version = 1;

/// How every frame begins, of whatever version.
constexpr std::string_view frame_magic = "LSTP";

struct Frame {
  std::uint16_t kind = 0;
  std::string body;
};

/// The bytes to send. Throws InternalError for a body of 4 GiB and more.
[[nodiscard]] std::string encode(const Frame& frame);

/// Takes a stream apart as it comes in. Memory is asked for as bytes arrive, never because a header promises them.
class FrameReader {
 public:
  /// Bodies longer than `longest` are refused.
  explicit FrameReader(std::size_t longest) : longest_(longest) {}

  void set_longest(std::size_t longest) noexcept { longest_ = longest; }

  /// Throws DataError ("not Lockstep", "of version 3", "5 GiB long") as soon as a header is wrong: hang up then.
  void add(std::span<const std::byte> bytes);

  /// The next whole frame; nothing until it is there.
  [[nodiscard]] std::optional<Frame> next();

 private:
  void check_header() const;

  std::size_t longest_;
  std::string waiting_;
  std::size_t taken_ = 0;  ///< bytes of waiting_ that were given out
};

/// Builds a body.
class BodyWriter {
 public:
  BodyWriter& number(std::uint64_t value);
  BodyWriter& text(const std::string& value);
  [[nodiscard]] std::string take() { return std::move(body_); }

 private:
  std::string body_;
};

/// Reads a body in the order in which it was written. Throws DataError where it ends early.
class BodyReader {
 public:
  explicit BodyReader(std::string_view body) : rest_(body) {}
  [[nodiscard]] std::uint64_t number();
  [[nodiscard]] std::string text();

  /// A count of things of at least `bytes_each` bytes: bounded by what is left.
  [[nodiscard]] std::size_t count(std::size_t bytes_each);

  /// Throws DataError unless all was read.
  void finish() const;

 private:
  std::string_view rest_;
};

}  // namespace lockstep
