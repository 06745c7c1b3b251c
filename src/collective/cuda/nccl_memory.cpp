// See nccl_memory.hpp.
#include "collective/cuda/nccl_memory.hpp"

namespace lockstep {

#if NCCL_VERSION_CODE >= 21900

NcclMemory allocate_for_nccl(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes == 0 || ncclMemAlloc(&memory, bytes) != ncclSuccess) return nullptr;
  NcclMemory owner(static_cast<std::byte*>(memory));
  cuda::check(cudaMemset(memory, 0, bytes), "cudaMemset");
  cuda::check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  return owner;
}

void register_with_nccl(ncclComm_t comm, void* memory, std::size_t bytes) {
  void* handle = nullptr;
  (void)ncclCommRegister(comm, memory, bytes, &handle);  // without it all-reduces are slower
}

#else

NcclMemory allocate_for_nccl(std::size_t /*bytes*/) { return nullptr; }
void register_with_nccl(ncclComm_t /*comm*/, void* /*memory*/, std::size_t /*bytes*/) {}

#endif

}  // namespace lockstep
