// From what a model is (Keras-like layers) to what a device does (operations over tensors).
#pragma once

#include "backend/backend.hpp"

#include <optional>

namespace lockstep {

/// Lowers a model: fuses activations into the operation before them and Rescaling into gather, drops Reshape and
/// Flatten, and works out which gradients backward needs. Layouts are left to the backend's `lay_out`. `input_scale` is
/// what bytes are multiplied with before the model sees them; none: 1/255, or 1 if the model itself rescales. Throws
/// UsageError where loss and output do not fit, and for a Rescaling behind layers that compute.
[[nodiscard]] Graph lower(const Sequential& architecture, const Loss& loss, bool mixed_bfloat16,
                          std::optional<double> input_scale = {});

}  // namespace lockstep
