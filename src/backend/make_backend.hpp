// Which backends this build has.
#pragma once

#include "backend/backend.hpp"

#include <memory>
#include <string>

namespace lockstep {

/// oneDNN on `threads` cores of this machine.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(int threads);

/// True if the library was built with the CUDA backend.
[[nodiscard]] bool has_cuda_backend() noexcept;

struct CudaOptions {
  int local_rank = 0;          ///< this rank's place on its host: it takes the GPU of that number, counted round
  bool deterministic = false;  ///< kernels chosen by rules, and only those whose sums have a fixed order
  bool allow_tf32 = false;     ///< let matrix products round their float32 inputs to 10 bits
};

/// cuDNN and cuBLASLt on a GPU, which becomes this thread's current device. Null where this build or this machine has
/// none; then `why_not` says so ("no NVIDIA driver was found").
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options, std::string& why_not);

}  // namespace lockstep
