// See picture.hpp.
#include "report/picture.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

namespace {

constexpr std::size_t header_bytes = 54;  // BITMAPFILEHEADER and BITMAPINFOHEADER

void append_number(std::string& bytes, std::uint32_t number, int size) {
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFFU);
}

std::string bitmap(const Picture& picture) {
  const std::size_t padding = (4 - picture.width * 3 % 4) % 4;  // a row has a multiple of four bytes
  const auto pixel_bytes = static_cast<std::uint32_t>(picture.height * (picture.width * 3 + padding));
  std::string bytes = "BM";
  append_number(bytes, header_bytes + pixel_bytes, 4);
  append_number(bytes, 0, 4);  // reserved
  append_number(bytes, header_bytes, 4);
  append_number(bytes, 40, 4);  // bytes of BITMAPINFOHEADER
  append_number(bytes, static_cast<std::uint32_t>(picture.width), 4);
  append_number(bytes, static_cast<std::uint32_t>(picture.height), 4);
  append_number(bytes, 1, 2);   // plane
  append_number(bytes, 24, 2);  // bits of a pixel
  append_number(bytes, 0, 4);   // not compressed
  append_number(bytes, pixel_bytes, 4);
  bytes.append(header_bytes - bytes.size(), '\0');  // no resolution, no palette
  for (std::size_t row = picture.height; row-- > 0;) {
    for (std::size_t column = 0; column < picture.width; ++column) {
      const std::uint8_t* const pixel = &picture.values[(row * picture.width + column) * picture.channels];
      for (const std::size_t blue_first : {2, 1, 0})
        bytes += static_cast<char>(pixel[picture.channels == 1 ? 0 : blue_first]);
    }
    bytes.append(padding, '\0');
  }
  return bytes;
}

/// RFC 4648, section 4.
std::string to_base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8U | (i < count ? static_cast<std::uint8_t>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) text += i <= count ? digits[group >> (18 - 6 * i) & 63U] : '=';
  }
  return text;
}

}  // namespace

std::string data_url(const Picture& picture) { return "data:image/bmp;base64," + to_base64(bitmap(picture)); }

}  // namespace lockstep
