// Where an element lies in images in Keras' order, [image][row][column][channel], or in kernels that lie alike.
#pragma once

#include "backend/cuda/host_device.hpp"

#include <cstddef>

namespace lockstep::cuda {

struct ImagePlace {
  std::size_t image;
  int row;
  int column;
  int channel;
};

[[nodiscard]] LOCKSTEP_HOST_DEVICE inline ImagePlace place_in_images(Index element, int height, int width,
                                                                     int channels) {
  const Index pixel = element / static_cast<Index>(channels);
  const Index line = pixel / static_cast<Index>(width);
  return {line / static_cast<Index>(height), static_cast<int>(line % static_cast<Index>(height)),
          static_cast<int>(pixel % static_cast<Index>(width)),
          static_cast<int>(element % static_cast<Index>(channels))};
}

}  // namespace lockstep::cuda
