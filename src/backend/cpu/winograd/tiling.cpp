// See tiling.hpp.
#include "backend/cpu/winograd/tiling.hpp"

#include <algorithm>

namespace lockstep::winograd {

namespace {

struct Interval {
  std::int64_t begin = 0;
  int size = 0;
};

/// Divides an axis into as few tiles as possible, whose sizes differ by at most 1, the larger ones first.
Interval tile_of_axis(std::int64_t size, std::int64_t index) {
  const std::int64_t count = tiles_of_axis(size);
  const std::int64_t smaller = size / count;
  const std::int64_t larger_ones = size % count;
  return {index * smaller + std::min(index, larger_ones),
          std::max(static_cast<int>(smaller) + (index < larger_ones ? 1 : 0), min_tile)};
}

}  // namespace

void TileBlock::assign(std::int64_t height, std::int64_t width, std::int64_t begin, std::int64_t end) {
  size_ = 0;
  counts_ = {};
  const std::int64_t columns = tiles_of_axis(width);
  const std::int64_t of_image = tiles_of_image(height, width);
  for (std::int64_t index = begin; index < end; ++index) {
    const std::int64_t of_its_image = index % of_image;
    const Interval rows = tile_of_axis(height, of_its_image / columns);
    const Interval its_columns = tile_of_axis(width, of_its_image % columns);
    tiles_.at(size_++) = {.image = index / of_image,
                          .row = rows.begin,
                          .column = its_columns.begin,
                          .rows = rows.size,
                          .columns = its_columns.size,
                          .matrix_rows = counts_};
    for (int i = 0; i <= rows.size - min_tile; ++i) {
      for (int j = 0; j <= its_columns.size - min_tile; ++j)
        ++counts_[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
    }
  }
}

}  // namespace lockstep::winograd
