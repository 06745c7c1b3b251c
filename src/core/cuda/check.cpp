// See check.hpp.
#include "core/cuda/check.hpp"

#include <lockstep/core/error.hpp>

#include <string_view>

namespace lockstep::cuda {

void fail(const std::string& call, const std::string& reason, std::source_location where) {
  std::string_view file = where.file_name();
  if (const std::size_t source = file.rfind("src/"); source != std::string_view::npos) file.remove_prefix(source);
  throw InternalError(call + " failed: " + reason + " (" + std::string(file) + ":" + std::to_string(where.line()) +
                      ")");
}

void check(cudaError_t status, const char* call, std::source_location where) {
  if (status == cudaSuccess) return;
  std::string reason = std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) {
    reason += "; use a smaller --global-batch-size or more workers, or free the device of other programs";
  }
  fail(call, reason, where);
}

}  // namespace lockstep::cuda
