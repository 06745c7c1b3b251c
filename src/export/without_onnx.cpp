// See onnx_file.hpp. For builds without libonnx.
#include "export/onnx_file.hpp"

#include <lockstep/core/error.hpp>

namespace lockstep {

void require_onnx() {
  throw UsageError(
      "this program was built without ONNX; build it where libonnx-dev and libprotobuf-dev are installed, or give "
      "--format saved-model");
}

void write_onnx(const std::filesystem::path& /*file*/, const OnnxGraph& /*graph*/) { require_onnx(); }

}  // namespace lockstep
