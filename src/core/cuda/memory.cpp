// See memory.hpp.
#include "core/cuda/memory.hpp"

#include <cstring>

namespace lockstep::cuda {

Stream make_stream() {
  return make_owned<Stream>([](cudaStream_t* stream) {
    check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  });
}

Event make_event() {
  return make_owned<Event>([](cudaEvent_t* event) {
    check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  });
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  memory_.reset(static_cast<std::byte*>(memory));
  check(cudaMemset(memory, 0, bytes), "cudaMemset");
  // Our streams do not wait for the default stream, on which cudaMemset ran.
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  memory_.reset(static_cast<std::byte*>(memory));
  std::memset(memory, 0, bytes);
}

}  // namespace lockstep::cuda
