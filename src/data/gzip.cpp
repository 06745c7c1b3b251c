// See gzip.hpp. Calls zlib's inflate.
#include "data/gzip.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep {

namespace {

constexpr int gzip_window_bits = 16 + MAX_WBITS;  // 16 selects gzip's header and checksum
constexpr std::size_t max_inflate_bytes = std::numeric_limits<uInt>::max();

}  // namespace

bool is_gzip(std::span<const std::uint8_t> bytes) noexcept {
  return bytes.size() >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
}

void GzipReader::EndInflate::operator()(z_stream_s* stream) const noexcept {
  inflateEnd(stream);  // fails only on a stream that inflateInit2 refused, which holds nothing
  delete stream;
}

GzipReader::GzipReader(std::span<const std::uint8_t> compressed, std::string name)
    : compressed_(compressed), name_(std::move(name)), stream_(std::make_unique<z_stream>().release()) {
  stream_->next_in = const_cast<Bytef*>(compressed_.data());  // zlib reads only; NOLINT(*-const-cast)
  if (inflateInit2(stream_.get(), gzip_window_bits) != Z_OK) {
    throw InternalError(fmt::format("zlib cannot start to decompress {}; free some memory", name_));
  }
}

std::size_t GzipReader::offset() const noexcept {
  return static_cast<std::size_t>(stream_->next_in - compressed_.data());
}

std::size_t GzipReader::read(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size() && !ended_) {
    const std::size_t room = std::min(out.size() - done, max_inflate_bytes);
    stream_->next_out = out.data() + done;
    stream_->avail_out = static_cast<uInt>(room);
    stream_->avail_in = static_cast<uInt>(std::min(compressed_.size() - offset(), max_inflate_bytes));
    const int status = inflate(stream_.get(), Z_NO_FLUSH);
    done += room - stream_->avail_out;
    if (status == Z_STREAM_END) {
      begin_next_member();
    } else if (status == Z_BUF_ERROR || (status == Z_OK && offset() == compressed_.size() && done < out.size())) {
      throw DataError(
          fmt::format("{} is cut short: its gzip stream is incomplete at the end of the file, byte {}; "
                      "fetch the file again",
                      name_, offset()));
    } else if (status == Z_MEM_ERROR) {
      throw InternalError(fmt::format("zlib ran out of memory for {}; free some memory", name_));
    } else if (status != Z_OK) {
      throw DataError(fmt::format("{} is damaged: its gzip stream is wrong near byte {} ({}); fetch the file again",
                                  name_, offset(), stream_->msg != nullptr ? stream_->msg : "zlib gives no reason"));
    }
  }
  return done;
}

// A gzip file may hold several members in sequence; nothing else may follow.
void GzipReader::begin_next_member() {
  const auto rest = compressed_.subspan(offset());
  if (rest.empty()) {
    ended_ = true;
    return;
  }
  if (!is_gzip(rest)) {
    throw DataError(fmt::format("{} has {} bytes that are not gzip after its stream, at byte {}; fetch the file again",
                                name_, rest.size(), offset()));
  }
  if (inflateReset(stream_.get()) != Z_OK) {
    throw InternalError(fmt::format("zlib cannot start the next member of {}; report this", name_));
  }
}

}  // namespace lockstep
