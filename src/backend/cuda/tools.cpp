// See tools.hpp.
#include "backend/cuda/tools.hpp"

namespace lockstep::cuda {

namespace {

constexpr std::size_t workspace_bytes = std::size_t{64} << 20U;

}  // namespace

void check(cudnnStatus_t status, const char* call, std::source_location where) {
  if (status != CUDNN_STATUS_SUCCESS) fail(call, cudnnGetErrorString(status), where);
}

void check(cublasStatus_t status, const char* call, std::source_location where) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, cublasLtGetStatusString(status), where);
}

Tools::Tools(DeviceQueue& queue, const Rules& rules)
    : queue_(queue),
      rules_(rules),
      cudnn_(make_owned<CudnnHandle>([](auto* handle) { check(cudnnCreate(handle), "cudnnCreate"); })),
      cublas_(make_owned<CublasLtHandle>([](auto* handle) { check(cublasLtCreate(handle), "cublasLtCreate"); })),
      workspace_(workspace_bytes) {
  check(cudnnSetStream(cudnn_.get(), queue.compute()), "cudnnSetStream");
}

}  // namespace lockstep::cuda
