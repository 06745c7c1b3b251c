// Decompresses gzip data in memory, as much at a time as the caller has room for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct z_stream_s;  // zlib's

namespace lockstep {

/// True if the bytes begin with gzip's magic number.
[[nodiscard]] bool is_gzip(std::span<const std::uint8_t> bytes) noexcept;

class GzipReader {
 public:
  /// `compressed` must outlive the reader; `name` is for messages.
  GzipReader(std::span<const std::uint8_t> compressed, std::string name);

  /// Decompresses the next bytes into `out` and returns how many. Returns fewer than `out.size()` only at the end of
  /// the stream, after verifying its checksum. Throws DataError if the stream is damaged or cut short.
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
