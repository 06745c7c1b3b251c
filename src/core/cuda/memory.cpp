// See memory.hpp.
#include "core/cuda/memory.hpp"

#include <cstring>

namespace lockstep::cuda {

Stream make_stream(StreamPriority priority) {
  int least = 0;
  int greatest = 0;  // a smaller number
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  return make_handle<Stream>([&](cudaStream_t* stream) {
    check(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, priority == StreamPriority::high ? greatest : 0),
          "cudaStreamCreateWithPriority");
  });
}

Event make_event() {
  return make_handle<Event>([](cudaEvent_t* event) {
    check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  });
}

Event make_timed_event() {
  return make_handle<Event>([](cudaEvent_t* event) { check(cudaEventCreate(event), "cudaEventCreate"); });
}

DeviceMemory allocate_on_device(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  DeviceMemory owner(static_cast<std::byte*>(memory));
  check(cudaMemset(memory, 0, bytes), "cudaMemset");
  // Streams of make_stream() ignore the default stream, on which cudaMemset runs.
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  return owner;
}

PinnedMemory allocate_pinned(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  PinnedMemory owner(static_cast<std::byte*>(memory));
  std::memset(memory, 0, bytes);
  return owner;
}

}  // namespace lockstep::cuda
