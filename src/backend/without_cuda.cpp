// Replaces cuda/ in a build without CUDA.
#include "backend/make_backend.hpp"

namespace lockstep {

bool has_cuda_backend() noexcept { return false; }

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& /*options*/, std::string& why_not) {
  why_not = "this build has no CUDA backend";
  return nullptr;
}

}  // namespace lockstep
