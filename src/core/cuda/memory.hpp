// Handles and memory of CUDA with owners. A status of freeing could only be told by throwing out of a destructor, so it
// is dropped: what matters failed earlier, and said so.
#pragma once

#include "core/cuda/check.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <type_traits>

namespace lockstep::cuda {

template <auto destroy>
struct Destroy {
  template <typename Object>
  void operator()(Object* object) const noexcept {
    (void)destroy(object);
  }
};

/// Any handle of CUDA, cuDNN, cuBLASLt or NCCL: all are pointers with a function that destroys them.
template <typename Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

/// Owned<...> from a function that creates the handle through a pointer to it, and checks the status.
template <typename Owner, typename Create>
[[nodiscard]] Owner make_owned(Create create) {
  typename Owner::pointer handle = nullptr;
  create(&handle);
  return Owner(handle);
}

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using Recording = Owned<cudaGraph_t, cudaGraphDestroy>;
using ReplayableRecording = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

[[nodiscard]] Stream make_stream();  ///< does not wait for the default stream
[[nodiscard]] Event make_event();    ///< for order only, without a time

/// Device memory, zero at first.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes);

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  Owned<std::byte*, cudaFree> memory_;
  std::size_t size_ = 0;
};

/// Host memory that the device reads and writes, zero at first.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes);

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  Owned<std::byte*, cudaFreeHost> memory_;
  std::size_t size_ = 0;
};

}  // namespace lockstep::cuda
