// The wire format between launchers, and between a launcher and its PMIx server. A listening port receives bytes from
// unauthenticated peers, so every field is checked before it is used.
//
//   magic "LSTP" | version u16 | kind u16 | length of the body u32 | body        all integers little-endian
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Peers with different versions refuse each other.
constexpr std::uint16_t frame_version = 1;

/// The first bytes of every frame, in every version.
constexpr std::string_view frame_magic = "LSTP";

struct Frame {
  std::uint16_t kind = 0;
  std::string body;
  bool is_placed = false;  ///< `body` is only its beginning; the rest lies where a Placer chose
};

/// Encodes a frame. Throws InternalError for a body of 4 GiB or more.
[[nodiscard]] std::string encode(const Frame& frame);
/// Encodes a frame up to the last `rest_bytes` bytes of its body, which the caller sends after it.
[[nodiscard]] std::string encode(const Frame& frame, std::size_t rest_bytes);

/// Memory that bytes fill in order.
using Places = std::vector<std::span<std::byte>>;

/// Chooses memory for the rest of a body by its beginning, so that a long body is received without copies.
struct Placer {
  std::size_t beginning_bytes = 0;
  /// May be called several times for a frame. The body is buffered if the places are not as long as its rest.
  std::function<Places(std::uint16_t kind, std::string_view beginning)> find;
};

/// Splits a byte stream into frames. Memory grows with the bytes received, never with the length that a header
/// announces.
class FrameReader {
 public:
  /// Refuses bodies longer than `max_message_bytes`.
  explicit FrameReader(std::size_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}

  void set_max_message_bytes(std::size_t max_message_bytes) noexcept { max_message_bytes_ = max_message_bytes; }

  /// Throws DataError as soon as a header is invalid (wrong magic, wrong version, too long); close the connection then.
  void add(std::span<const std::byte> bytes);

  /// The next complete frame, or nullopt until one has arrived. If the placer finds places for the rest of an
  /// incomplete body, the next bytes belong there.
  [[nodiscard]] std::optional<Frame> next(const Placer& placer = {});

  /// The places that the next bytes fill, before any are passed to add(); empty if there are none. The caller says how
  /// many bytes it has written there.
  [[nodiscard]] Places missing() const;
  void filled(std::size_t bytes);

  /// Buffers a body that was being placed, because its places are about to go.
  void forget_places();

 private:
  /// A body whose rest is received in place. Nothing else is in the buffer until it is complete.
  struct Placed {
    Frame frame;
    Places places;
    std::size_t received = 0;  ///< bytes of the rest
    std::size_t bytes = 0;     ///< of the rest; 0: no body is being placed
  };

  void check_header() const;
  void place(const Placer& placer, std::uint16_t kind, std::string_view body, std::size_t length);

  std::size_t max_message_bytes_;
  std::string buffer_;
  std::size_t consumed_bytes_ = 0;  ///< bytes of buffer_ already returned by next()
  Placed placed_;
};

/// Writes the body of a frame.
class BodyWriter {
 public:
  BodyWriter& number(std::uint64_t value);
  BodyWriter& text(const std::string& value);
  /// Bytes that end the body, without their number.
  BodyWriter& rest(std::span<const std::byte> bytes);
  [[nodiscard]] std::string take() { return std::move(body_); }

 private:
  std::string body_;
};

/// Reads the body of a frame; the calls must match those of BodyWriter. Throws DataError if the body ends early.
class BodyReader {
 public:
  explicit BodyReader(std::string_view body) : rest_(body) {}
  [[nodiscard]] std::uint64_t number();
  [[nodiscard]] std::string text();

  /// Reads the number of elements that follow. Throws DataError if that many elements of `bytes_each` bytes or more
  /// cannot fit in the rest of the body.
  [[nodiscard]] std::size_t count(std::size_t bytes_each);

  /// The bytes that are left; nothing follows them.
  [[nodiscard]] std::string_view take_rest() noexcept { return std::exchange(rest_, {}); }

  /// Throws DataError if bytes are left.
  void finish() const;

 private:
  std::string_view rest_;
};

}  // namespace lockstep
