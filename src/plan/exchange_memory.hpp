// Memory for what ranks hand each other within a step: as kernels see it, and as a communicator does.
#pragma once

#include "backend/backend.hpp"
#include "collective/communicator.hpp"
#include "core/aligned_buffer.hpp"

#include <span>
#include <vector>

namespace lockstep {

class ExchangeMemory {
 public:
  ExchangeMemory() = default;
  explicit ExchangeMemory(const Graph& graph);

  [[nodiscard]] std::span<const ExchangeBuffers> buffers() const noexcept { return buffers_; }
  [[nodiscard]] const std::vector<Exchange>& exchanges() const noexcept { return exchanges_; }

 private:
  std::vector<AlignedBuffer> memory_;
  std::vector<ExchangeBuffers> buffers_;
  std::vector<Exchange> exchanges_;
};

}  // namespace lockstep
