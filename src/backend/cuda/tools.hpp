// What all kernels of a process share: streams, library handles, scratch memory, and the rules by which algorithms are
// chosen. Kernels of one stream run one after the other, so they share the scratch memory as well.
#pragma once

#include "backend/cuda/remembered.hpp"
#include "core/cuda/device_queue.hpp"

#include <cublasLt.h>
#include <cudnn.h>

#include <cstddef>
#include <source_location>
#include <string>

namespace lockstep::cuda {

/// Throw InternalError unless the status is the library's success.
void check(cudnnStatus_t status, const char* call, std::source_location where = std::source_location::current());
void check(cublasStatus_t status, const char* call, std::source_location where = std::source_location::current());

using CudnnHandle = Owned<cudnnHandle_t, cudnnDestroy>;
using CublasLtHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;

struct Rules {
  bool deterministic = false;  ///< algorithms by rules, never by clocks, and only those whose sums have a fixed order
  bool allow_tf32 = false;
  bool direct_convolutions = false;  ///< our own instead of cuDNN's: to find out whose a fault is
};

/// An algorithm of cuDNN's, and its arithmetic.
struct ConvolutionChoice {
  int algorithm = -1;  ///< -1: there is none
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

struct ProductChoice {
  bool exists = false;
  cublasLtMatmulAlgo_t algorithm{};
};

class Tools {
 public:
  Tools(DeviceQueue& queue, const Rules& rules);

  [[nodiscard]] cudaStream_t stream() const noexcept { return queue_.compute(); }
  [[nodiscard]] cudnnHandle_t cudnn() const noexcept { return cudnn_.get(); }
  [[nodiscard]] cublasLtHandle_t cublas() const noexcept { return cublas_.get(); }
  [[nodiscard]] const Rules& rules() const noexcept { return rules_; }

  /// For the libraries' algorithms.
  [[nodiscard]] void* workspace() const noexcept { return workspace_.data(); }
  [[nodiscard]] std::size_t workspace_size() const noexcept { return workspace_.size(); }

  /// What was chosen by these rules so far: nothing that anybody can tell, but by the clock.
  [[nodiscard]] Remembered<ConvolutionChoice>& convolutions() const noexcept { return convolutions_; }
  [[nodiscard]] Remembered<ProductChoice>& products() const noexcept { return products_; }

 private:
  DeviceQueue& queue_;
  Rules rules_;
  mutable Remembered<ConvolutionChoice> convolutions_;
  mutable Remembered<ProductChoice> products_;
  CudnnHandle cudnn_;
  CublasLtHandle cublas_;
  DeviceBuffer workspace_;
};

}  // namespace lockstep::cuda
