// The memory that one operation reads and writes, filled with random numbers in place of the model's: for timing, which
// must not depend on weights and batches that are still zero, nor change any.
#pragma once

#include "backend/cuda/kernel.hpp"

#include <cstddef>
#include <vector>

namespace lockstep::cuda {

class ScratchTensors {
 public:
  /// Throws InternalError if the device has too little memory.
  explicit ScratchTensors(const KernelScope& scope);
  ScratchTensors(const ScratchTensors&) = delete;
  ScratchTensors& operator=(const ScratchTensors&) = delete;

  /// The operation on this memory.
  [[nodiscard]] const KernelScope& scope() const noexcept { return scope_; }

 private:
  void replace_tensors(const KernelScope& scope);
  void replace_parameters(const KernelScope& scope);

  /// Memory in place of `original`, aligned as it is. Null for null.
  template <typename T>
  T* replace(T* original, std::size_t count, ElementType type);

  std::vector<DeviceBuffer> memory_;
  std::vector<TensorBuffers> buffers_;
  Arenas arenas_;
  KernelScope scope_;
};

}  // namespace lockstep::cuda
