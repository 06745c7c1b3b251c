// See cuda_context.hpp.
#include "backend/cuda/cuda_context.hpp"

namespace lockstep::cuda {

void check(cudnnStatus_t status, const char* call, std::source_location where) {
  if (status != CUDNN_STATUS_SUCCESS) fail(call, cudnnGetErrorString(status), where);
}

void check(cublasStatus_t status, const char* call, std::source_location where) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, cublasLtGetStatusString(status), where);
}

CudaContext::CudaContext(DeviceStreams& device_streams, const AlgorithmRules& rules)
    : device_streams_(device_streams),
      rules_(rules),
      cudnn_(make_handle<CudnnHandle>([](auto* handle) { check(cudnnCreate(handle), "cudnnCreate"); })),
      cublas_(make_handle<CublasLtHandle>([](auto* handle) { check(cublasLtCreate(handle), "cublasLtCreate"); })) {
  check(cudnnSetStream(cudnn_.get(), device_streams.compute()), "cudnnSetStream");
}

}  // namespace lockstep::cuda
