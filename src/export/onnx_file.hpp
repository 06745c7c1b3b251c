// Files of ONNX. A build without libonnx has without_onnx.cpp in place of onnx_file.cpp.
#pragma once

#include "export/onnx_graph.hpp"

#include <filesystem>

namespace lockstep {

/// Throws UsageError if this build cannot write ONNX.
void require_onnx();

/// Writes the file atomically. Throws DataError for a model that is too large for ONNX, IoError if the file cannot be
/// written.
void write_onnx(const std::filesystem::path& file, const OnnxGraph& graph);

}  // namespace lockstep
