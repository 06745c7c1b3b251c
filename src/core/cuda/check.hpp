// Turns status codes of CUDA and its libraries into errors that name the call and its source location. The code that
// prints the error adds the rank.
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
