// Small pictures on a page of HTML.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct Picture {
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 1;          ///< 1: grey; 3: red, green and blue
  std::vector<std::uint8_t> values;  ///< row-major [height, width, channels]
};

/// The picture as a "data:" URL, which needs no file: an uncompressed bitmap (BMP with a BITMAPINFOHEADER).
[[nodiscard]] std::string data_url(const Picture& picture);

}  // namespace lockstep
