// Activation functions as ONNX's operators.
#pragma once

#include "export/onnx_builder.hpp"

#include <lockstep/layers/activation.hpp>

#include <optional>

namespace lockstep {

/// The function of a value, which has any shape; nullopt for a function without a form in ONNX.
[[nodiscard]] std::optional<OnnxValue> add_activation(OnnxBuilder& onnx, const OnnxValue& x,
                                                      ActivationFunction function);

}  // namespace lockstep
