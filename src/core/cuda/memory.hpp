// RAII owners of CUDA handles and memory. Destructors cannot throw, so they ignore the status of the call that frees;
// an earlier call has reported any error that matters.
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

/// Owns a handle of CUDA, cuDNN, cuBLASLt or NCCL: a pointer and the function that destroys it.
template <typename Handle, auto destroy>
using UniqueHandle = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<destroy>>;

/// Makes a UniqueHandle. `create` gets a pointer to the handle to fill in, and checks the status.
template <typename Owner, typename Create>
[[nodiscard]] Owner make_handle(Create create) {
  typename Owner::pointer handle = nullptr;
  create(&handle);
  return Owner(handle);
}

using Stream = UniqueHandle<cudaStream_t, cudaStreamDestroy>;
using Event = UniqueHandle<cudaEvent_t, cudaEventDestroy>;
using CapturedGraph = UniqueHandle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

enum class StreamPriority { normal, high };
[[nodiscard]] Stream make_stream(StreamPriority priority = StreamPriority::normal);  ///< ignores the default stream
[[nodiscard]] Event make_event();        ///< orders streams; records no time
[[nodiscard]] Event make_timed_event();  ///< for cudaEventElapsedTime

using DeviceMemory = UniqueHandle<std::byte*, cudaFree>;
using PinnedMemory = UniqueHandle<std::byte*, cudaFreeHost>;

/// Zero-initialized memory; null for 0 bytes. Throws InternalError.
[[nodiscard]] DeviceMemory allocate_on_device(std::size_t bytes);
[[nodiscard]] PinnedMemory allocate_pinned(std::size_t bytes);

/// Memory of `allocate` with its size.
template <auto allocate>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes) : memory_(allocate(bytes)), size_(bytes) {}

  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  template <typename T>
  [[nodiscard]] T* as() const noexcept {
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  decltype(allocate(0)) memory_;
  std::size_t size_ = 0;
};

using DeviceBuffer = Buffer<allocate_on_device>;
using PinnedBuffer = Buffer<allocate_pinned>;  ///< page-locked host memory that the device reads and writes

}  // namespace lockstep::cuda
