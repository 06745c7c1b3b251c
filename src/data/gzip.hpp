// Unpacks gzip bytes that lie in memory, never more of them than the caller has room for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct z_stream_s;  // zlib's

namespace lockstep {

/// Deflate cannot pack more than this many bytes into one: a larger promise is a lie.
inline constexpr std::uint64_t max_deflate_ratio = 1032;

/// True if the bytes begin as a gzip file does.
[[nodiscard]] bool is_gzip(std::span<const std::uint8_t> bytes) noexcept;

class GzipReader {
 public:
  /// `compressed` must outlive the reader; `name` is for messages.
  GzipReader(std::span<const std::uint8_t> compressed, std::string name);

  /// Unpacks the next bytes into `out` and returns how many: fewer than asked for only at the end of the stream, whose
  /// check sum is then known to be right. Throws DataError where the stream is damaged or cut short.
  [[nodiscard]] std::size_t read(std::span<std::uint8_t> out);

 private:
  struct EndInflate {
    void operator()(z_stream_s* stream) const noexcept;
  };

  [[nodiscard]] std::size_t offset() const noexcept;
  void begin_next_member();

  std::span<const std::uint8_t> compressed_;
  std::string name_;
  std::unique_ptr<z_stream_s, EndInflate> stream_;
  bool ended_ = false;
};

}  // namespace lockstep
