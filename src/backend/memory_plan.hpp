// Where buffers lie in one block of memory, so that those that are used at different times share it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// A buffer, and the operations that use it: the first and the last, as indices in the order of a step.
struct BufferUse {
  std::size_t bytes = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  ///< by buffer, in bytes: multiples of a cache line
  std::size_t bytes = 0;             ///< of the whole block
};

/// Two buffers overlap only if no operation lies in the uses of both. Large buffers are placed first, each as low as it
/// goes, which comes close to the largest sum of the buffers in use at one time.
[[nodiscard]] MemoryPlan plan_memory(std::span<const BufferUse> uses);

}  // namespace lockstep
