// Scratch memory for the algorithms of cuDNN and cuBLASLt, which kernels of one stream use one after another. While
// algorithms are chosen, it is as large as any of them may ask for; then as large as the chosen ones need.
#pragma once

#include "core/cuda/memory.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep::cuda {

class Workspace {
 public:
  [[nodiscard]] void* data() const noexcept { return current().data(); }
  [[nodiscard]] std::size_t size() const noexcept { return current().size(); }

  /// Call it before kernels are made. Nothing may be in flight.
  void begin_choice();
  /// Call it with the bytes that a chosen algorithm needs.
  void require(std::size_t bytes) noexcept { required_ = std::max(required_, bytes); }
  /// Call it when the kernels are made, before they run in a step. Nothing may be in flight.
  void end_choice();

 private:
  [[nodiscard]] const DeviceBuffer& current() const noexcept { return choice_.size() > 0 ? choice_ : memory_; }

  DeviceBuffer memory_;
  std::vector<DeviceBuffer> former_;  ///< smaller ones, which captured steps still use
  DeviceBuffer choice_;               ///< while algorithms are chosen
  std::size_t required_ = 0;
};

}  // namespace lockstep::cuda
