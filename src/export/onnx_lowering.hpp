// From a model to ONNX, for inference: float32, Keras' shapes and names, a free batch, weights included.
#pragma once

#include "checkpoint/model_data.hpp"
#include "export/onnx_graph.hpp"

namespace lockstep {

/// Throws DataError for a layer that has no exact form in ONNX; the message names it.
[[nodiscard]] OnnxGraph lower_to_onnx(const ModelData& model, int opset = default_onnx_opset);

}  // namespace lockstep
