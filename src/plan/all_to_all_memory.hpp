// Allocates the buffers of a step's all-to-alls, and describes them to kernels and to the communicator.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "core/aligned_buffer.hpp"

#include <span>
#include <vector>

namespace lockstep {

class AllToAllMemory {
 public:
  AllToAllMemory() = default;
  explicit AllToAllMemory(const Graph& graph);

  [[nodiscard]] std::span<const AllToAllBuffers> buffers() const noexcept { return buffers_; }
  [[nodiscard]] const std::vector<AllToAll>& all_to_alls() const noexcept { return all_to_alls_; }

 private:
  std::vector<AlignedBuffer> memory_;
  std::vector<AllToAllBuffers> buffers_;
  std::vector<AllToAll> all_to_alls_;
};

}  // namespace lockstep
