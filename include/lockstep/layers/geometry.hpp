// Sizes and padding of windows over images and sequences.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// Height and width. A single number sets both.
struct Size2D {
  Size2D(int both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor): as Keras reads `3`
  Size2D(int height_, int width_) : height(height_), width(width_) {}
  int height;
  int width;
  friend bool operator==(const Size2D&, const Size2D&) = default;
};

/// The length of a window along a sequence.
struct Size1D {
  Size1D(int length_) : length(length_) {}  // NOLINT(google-explicit-constructor): as Keras reads `3`
  int length;
  friend bool operator==(const Size1D&, const Size1D&) = default;
};

/// Cells on the four sides of an image: added by ZeroPadding2D, removed by Cropping2D.
struct Margins2D {
  Margins2D(int all) : Margins2D(all, all, all, all) {}  // NOLINT(google-explicit-constructor): as Keras reads `1`
  Margins2D(int top_, int bottom_, int left_, int right_) : top(top_), bottom(bottom_), left(left_), right(right_) {}
  int top;
  int bottom;
  int left;
  int right;
  friend bool operator==(const Margins2D&, const Margins2D&) = default;
};

/// Steps at both ends of a sequence.
struct Margins1D {
  Margins1D(int both) : Margins1D(both, both) {}  // NOLINT(google-explicit-constructor): as Keras reads `1`
  Margins1D(int before_, int after_) : before(before_), after(after_) {}
  int before;
  int after;
  friend bool operator==(const Margins1D&, const Margins1D&) = default;
};

/// How UpSampling2D and Resizing compute new cells; from Keras' "nearest" or "bilinear".
struct Interpolation {
  enum class Kind : std::uint8_t { nearest, bilinear };
  static const Interpolation nearest, bilinear;

  constexpr explicit Interpolation(Kind kind_) noexcept : kind(kind_) {}
  Interpolation(const char* name);  // NOLINT(google-explicit-constructor): as Keras reads "nearest"
  Kind kind;
  friend constexpr bool operator==(const Interpolation&, const Interpolation&) = default;
};

inline constexpr Interpolation Interpolation::nearest{Kind::nearest};
inline constexpr Interpolation Interpolation::bilinear{Kind::bilinear};

/// Padding::same, or Keras' "same". Only Conv1D has `causal`, which pads only before the first step.
struct Padding {
  enum class Kind : std::uint8_t { valid, same, causal };
  static const Padding valid, same, causal;

  constexpr explicit Padding(Kind kind_) noexcept : kind(kind_) {}
  Padding(const char* name);  // NOLINT(google-explicit-constructor): as Keras reads "same"
  Kind kind;
  friend constexpr bool operator==(const Padding&, const Padding&) = default;
};

inline constexpr Padding Padding::valid{Kind::valid};
inline constexpr Padding Padding::same{Kind::same};
inline constexpr Padding Padding::causal{Kind::causal};

/// The name in Keras' files: "same".
[[nodiscard]] std::string_view keras_name(Padding padding) noexcept;

}  // namespace lockstep
