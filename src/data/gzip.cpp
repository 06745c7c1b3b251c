// zlib's inflate behind a reader that knows where it is.
#include "data/gzip.hpp"

#include <lockstep/core/error.hpp>

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep {

namespace {

constexpr int gzip_window_bits = 16 + MAX_WBITS;  // 16 asks zlib for gzip's header and check sum
constexpr std::size_t largest_chunk = std::numeric_limits<uInt>::max();

}  // namespace

bool is_gzip(std::span<const std::uint8_t> bytes) noexcept {
  return bytes.size() >= 2 && bytes[0] == 0x1F && bytes[1] == 0x8B;
}

void GzipReader::EndInflate::operator()(z_stream_s* stream) const noexcept {
  inflateEnd(stream);  // fails only on a stream that was never begun, which frees nothing
  delete stream;
}

GzipReader::GzipReader(std::span<const std::uint8_t> compressed, std::string name)
    : compressed_(compressed), name_(std::move(name)), stream_(std::make_unique<z_stream>().release()) {
  stream_->next_in = const_cast<Bytef*>(compressed_.data());  // zlib reads only; NOLINT(*-const-cast)
  if (inflateInit2(stream_.get(), gzip_window_bits) != Z_OK) {
    throw InternalError("zlib cannot begin to unpack " + name_ + "; check that memory is left.");
  }
}

std::size_t GzipReader::offset() const noexcept {
  return static_cast<std::size_t>(stream_->next_in - compressed_.data());
}

std::size_t GzipReader::read(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size() && !ended_) {
    const std::size_t room = std::min(out.size() - done, largest_chunk);
    stream_->next_out = out.data() + done;
    stream_->avail_out = static_cast<uInt>(room);
    stream_->avail_in = static_cast<uInt>(std::min(compressed_.size() - offset(), largest_chunk));
    const int status = inflate(stream_.get(), Z_NO_FLUSH);
    done += room - stream_->avail_out;
    if (status == Z_STREAM_END) {
      begin_next_member();
    } else if (status == Z_BUF_ERROR || (status == Z_OK && offset() == compressed_.size() && done < out.size())) {
      throw DataError(name_ + " is cut short: its gzip stream still goes on at its end, byte " +
                      std::to_string(offset()) + "; fetch the file again.");
    } else if (status == Z_MEM_ERROR) {
      throw InternalError("zlib ran out of memory while it unpacked " + name_ + "; check that memory is left.");
    } else if (status != Z_OK) {
      throw DataError(name_ + " is damaged: its gzip stream is wrong near byte " + std::to_string(offset()) + " (" +
                      (stream_->msg != nullptr ? stream_->msg : "zlib gives no reason") + "); fetch the file again.");
    }
  }
  return done;
}

// A gzip file may hold several members, one behind the other; nothing else may follow.
void GzipReader::begin_next_member() {
  const auto rest = compressed_.subspan(offset());
  if (rest.empty()) {
    ended_ = true;
    return;
  }
  if (!is_gzip(rest)) {
    throw DataError(name_ + " has " + std::to_string(rest.size()) +
                    " bytes that are not gzip behind its stream, at byte " + std::to_string(offset()) +
                    "; fetch the file again.");
  }
  if (inflateReset(stream_.get()) != Z_OK) throw InternalError("zlib cannot go on with " + name_ + "; report this.");
}

}  // namespace lockstep
