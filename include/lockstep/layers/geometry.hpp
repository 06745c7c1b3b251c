// Sizes and padding of windows over images.
#pragma once

#include <cstdint>

namespace lockstep {

/// Height and width. A single number sets both.
struct Size2D {
  Size2D(int both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor): as Keras reads `3`
  Size2D(int height_, int width_) : height(height_), width(width_) {}
  int height;
  int width;
  friend bool operator==(const Size2D&, const Size2D&) = default;
};

/// Padding::same, or Keras' "same".
struct Padding {
  enum class Kind : std::uint8_t { valid, same };
  static const Padding valid, same;

  constexpr explicit Padding(Kind kind_) noexcept : kind(kind_) {}
  Padding(const char* name);  // NOLINT(google-explicit-constructor): as Keras reads "same"
  Kind kind;
  friend constexpr bool operator==(const Padding&, const Padding&) = default;
};

inline constexpr Padding Padding::valid{Kind::valid};
inline constexpr Padding Padding::same{Kind::same};

}  // namespace lockstep
