// How the values of an image lie in memory: the order of its rows, columns and channels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

/// Examples are contiguous. Each is stored as [channels / block][height][width][block].
enum class Layout : std::uint8_t {
  nhwc,     ///< channels last, as in Keras: one block holds all channels
  nChw16c,  ///< blocks of 16 channels
  nChw8c,   ///< blocks of 8 channels
  nchw,     ///< channels first: blocks of one channel
};

inline constexpr std::array layout_names{std::string_view("nhwc"), std::string_view("nChw16c"),
                                         std::string_view("nChw8c"), std::string_view("nchw")};

[[nodiscard]] constexpr std::string_view to_string(Layout layout) noexcept {
  return layout_names[static_cast<std::size_t>(layout)];
}

[[nodiscard]] constexpr std::optional<Layout> layout_from(std::string_view name) noexcept {
  for (std::size_t i = 0; i < layout_names.size(); ++i) {
    if (layout_names[i] == name) return static_cast<Layout>(i);
  }
  return std::nullopt;
}

/// The channels in one block of a tensor of `channels` channels.
[[nodiscard]] constexpr std::int64_t block_of(Layout layout, std::int64_t channels) noexcept {
  switch (layout) {
    case Layout::nhwc: break;
    case Layout::nChw16c: return 16;
    case Layout::nChw8c: return 8;
    case Layout::nchw: return 1;
  }
  return channels;
}

/// Whether blocks of this layout divide the channels.
[[nodiscard]] constexpr bool fits(Layout layout, std::int64_t channels) noexcept {
  return layout == Layout::nhwc || (channels > 0 && channels % block_of(layout, channels) == 0);
}

}  // namespace lockstep
