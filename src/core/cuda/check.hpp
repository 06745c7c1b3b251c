// Status codes of CUDA and the libraries on it as errors: one sentence that names the call and the place of it. (The
// rank is named by whoever prints the error.)
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>

namespace lockstep::cuda {

/// Throws InternalError: "CALL failed: REASON (src/backend/cuda/dense.cpp:12)".
[[noreturn]] void fail(const std::string& call, const std::string& reason,
                       std::source_location where = std::source_location::current());

/// Throws InternalError unless `status` is cudaSuccess.
void check(cudaError_t status, const char* call, std::source_location where = std::source_location::current());

}  // namespace lockstep::cuda
