// Creates the backends of this build.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/instruction_set.hpp"

#include <lockstep/core/convolutions.hpp>

#include <memory>
#include <optional>
#include <string>

namespace lockstep {

/// oneDNN and our own kernels on `threads` cores of this machine. `layout`: of images wherever possible, instead of the
/// fastest. `set`: kernels are chosen for no larger set of instructions.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(int threads, std::optional<Layout> layout = {},
                                                        Convolutions convolutions = Convolutions::automatic,
                                                        InstructionSet set = InstructionSet::amx_bf16);

/// True if the library was built with the CUDA backend.
[[nodiscard]] bool has_cuda_backend() noexcept;

struct CudaOptions {
  int local_rank = 0;          ///< uses GPU local_rank modulo the number of GPUs
  bool deterministic = false;  ///< use only kernels with a fixed summation order, and choose them without timing
  bool allow_tf32 = false;     ///< let matrix products round their float32 inputs to a 10-bit mantissa
};

/// cuDNN and cuBLASLt on a GPU, which becomes this thread's current device. Returns null if this build or this machine
/// does not support CUDA, and sets `why_not` to the reason ("no NVIDIA GPU was found").
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options, std::string& why_not);

}  // namespace lockstep
