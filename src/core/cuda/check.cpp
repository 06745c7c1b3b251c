// See check.hpp.
#include "core/cuda/check.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <string_view>

namespace lockstep::cuda {

void fail(const std::string& call, const std::string& reason, std::source_location where) {
  std::string_view file = where.file_name();
  if (const std::size_t source = file.rfind("src/"); source != std::string_view::npos) file.remove_prefix(source);
  throw InternalError(fmt::format("{} failed: {} ({}:{})", call, reason, file, where.line()));
}

void check(cudaError_t status, const char* call, std::source_location where) {
  if (status == cudaSuccess) return;
  const char* remedy = status == cudaErrorMemoryAllocation
                           ? "; use a smaller --global-batch-size or more workers, or stop other programs on the device"
                           : "";
  fail(call, fmt::format("{}, {}{}", cudaGetErrorName(status), cudaGetErrorString(status), remedy), where);
}

}  // namespace lockstep::cuda
