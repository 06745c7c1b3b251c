// Splits the index of an element in NHWC order into [image][row][column][channel]. Also used for kernels, in the order
// [filter][row][column][channel].
#pragma once

#include "backend/cuda/index.hpp"

#include <cstddef>

namespace lockstep::cuda {

struct NhwcIndex {
  std::size_t image;
  int row;
  int column;
  int channel;
};

[[nodiscard]] LOCKSTEP_HOST_DEVICE inline NhwcIndex nhwc_index_of(Index element, int height, int width, int channels) {
  const Index pixel = element / static_cast<Index>(channels);
  const Index row = pixel / static_cast<Index>(width);
  return {row / static_cast<Index>(height), static_cast<int>(row % static_cast<Index>(height)),
          static_cast<int>(pixel % static_cast<Index>(width)),
          static_cast<int>(element % static_cast<Index>(channels))};
}

}  // namespace lockstep::cuda
