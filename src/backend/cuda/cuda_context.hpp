// State that all kernels of a process share: streams, library handles, workspace, and the rules for choosing
// algorithms. Kernels of one stream run one after another, so they can share the workspace.
#pragma once

#include "backend/cuda/kernel_candidates.hpp"
#include "backend/cuda/workspace.hpp"
#include "core/cuda/device_streams.hpp"

#include <cublasLt.h>
#include <cudnn.h>

#include <cstddef>
#include <source_location>
#include <string>

namespace lockstep::cuda {

/// Throws InternalError unless the status is the library's success code.
void check(cudnnStatus_t status, const char* call, std::source_location where = std::source_location::current());
void check(cublasStatus_t status, const char* call, std::source_location where = std::source_location::current());

using CudnnHandle = UniqueHandle<cudnnHandle_t, cudnnDestroy>;
using CublasLtHandle = UniqueHandle<cublasLtHandle_t, cublasLtDestroy>;

struct AlgorithmRules {
  bool deterministic = false;  ///< only candidates with a fixed summation order, chosen without timing
  bool allow_tf32 = false;
  bool direct_convolutions = false;  ///< use Lockstep's own convolutions, to tell its faults from cuDNN's
};

class CudaContext {
 public:
  CudaContext(DeviceStreams& device_streams, const AlgorithmRules& rules);

  [[nodiscard]] cudaStream_t stream() const noexcept { return device_streams_.compute(); }
  [[nodiscard]] cudnnHandle_t cudnn() const noexcept { return cudnn_.get(); }
  [[nodiscard]] cublasLtHandle_t cublas() const noexcept { return cublas_.get(); }
  [[nodiscard]] const AlgorithmRules& rules() const noexcept { return rules_; }

  /// Device memory that cuDNN's and cuBLASLt's algorithms may use. It and the cache are mutable, because they affect
  /// speed only.
  [[nodiscard]] Workspace& workspace() const noexcept { return workspace_; }
  [[nodiscard]] AlgorithmCache& algorithms() const noexcept { return algorithms_; }

 private:
  DeviceStreams& device_streams_;
  AlgorithmRules rules_;
  mutable AlgorithmCache algorithms_;
  CudnnHandle cudnn_;
  CublasLtHandle cublas_;
  mutable Workspace workspace_;
};

}  // namespace lockstep::cuda
