// Device memory that NCCL allocates and registers, so that it may copy between GPUs without buffers of its own. NCCL
// has that from version 2.19 on.
#pragma once

#include "core/cuda/memory.hpp"

#include <nccl.h>

#include <cstddef>

namespace lockstep {

#if NCCL_VERSION_CODE >= 21900
using NcclMemory = cuda::UniqueHandle<std::byte*, ncclMemFree>;
#else
using NcclMemory = cuda::DeviceMemory;
#endif

/// Zero-initialized memory; null where NCCL cannot allocate.
[[nodiscard]] NcclMemory allocate_for_nccl(std::size_t bytes);

/// Speeds all-reduces of this memory up, if it can. The registration ends with the communicator.
void register_with_nccl(ncclComm_t comm, void* memory, std::size_t bytes);

}  // namespace lockstep
