// Covers the results of a 3 x 3 convolution with tiles of 2 to 4 rows and columns.
//
// A tile of m x n results needs (m + 2)(n + 2) products for each pair of channels, the components of its transform.
// Tiles of all sizes use the same evaluation points in the same order, and smaller ones use fewer of them. So tiles of
// all sizes share transformed weights, and along an axis of two results or more, no tile computes results that lie
// outside of the image.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::winograd {

inline constexpr int max_tile = 4;
inline constexpr int min_tile = 2;
inline constexpr int points = max_tile + 2;  ///< components of the largest tile along an axis
inline constexpr int components = points * points;

/// Tiles of an axis differ in whether they use the components behind those of the smallest tile.
inline constexpr int component_classes = max_tile - min_tile + 1;
[[nodiscard]] constexpr int class_of(int component) noexcept {
  constexpr int of_smallest = min_tile + 2;
  return component < of_smallest ? 0 : component - of_smallest + 1;
}

/// Some results of an image.
struct Tile {
  std::int64_t image = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
  int rows = 0;  ///< 2 to 4; along an axis of 1 result, the second result is discarded
  int columns = 0;
  /// The tile's row in the matrix of each component, by the classes of the component's row and column.
  std::array<std::array<std::int64_t, component_classes>, component_classes> matrix_rows = {};
};

inline constexpr std::int64_t max_tiles_of_block = 64;

/// Tiles that are transformed and multiplied together, image by image in rows.
class TileBlock {
 public:
  /// The tiles [begin, end) of images of height x width results, which have `tiles_of_image` tiles each; at most
  /// max_tiles_of_block.
  void assign(std::int64_t height, std::int64_t width, std::int64_t begin, std::int64_t end);

  [[nodiscard]] std::span<const Tile> tiles() const noexcept { return std::span(tiles_).first(size_); }
  /// The tiles that have a component.
  [[nodiscard]] std::int64_t count(int row, int column) const noexcept {
    return counts_[static_cast<std::size_t>(class_of(row))][static_cast<std::size_t>(class_of(column))];
  }

 private:
  std::array<Tile, max_tiles_of_block> tiles_ = {};  // not a vector: steps allocate nothing
  std::size_t size_ = 0;
  std::array<std::array<std::int64_t, component_classes>, component_classes> counts_ = {};
};

[[nodiscard]] constexpr std::int64_t tiles_of_axis(std::int64_t size) noexcept {
  return (size + max_tile - 1) / max_tile;
}
[[nodiscard]] constexpr std::int64_t tiles_of_image(std::int64_t height, std::int64_t width) noexcept {
  return tiles_of_axis(height) * tiles_of_axis(width);
}

/// The products of one pair of channels for an image; direct convolution needs nine for a result.
[[nodiscard]] constexpr std::int64_t products_of_image(std::int64_t height, std::int64_t width) noexcept {
  const auto of_axis = [](std::int64_t size) { return (size < min_tile ? min_tile : size) + 2 * tiles_of_axis(size); };
  return of_axis(height) * of_axis(width);
}

}  // namespace lockstep::winograd
