// From what a model is (Keras-like layers) to what a device does (operations over tensors).
#pragma once

#include "backend/backend.hpp"

namespace lockstep {

/// Lowers a model: fuses activations into the operation before them, drops Reshape and Flatten, and works out which
/// gradients backward needs. Layouts are left to the backend's `lay_out`.
/// Throws UsageError where loss and output do not fit.
[[nodiscard]] Graph lower(const Sequential& architecture, const Loss& loss, bool mixed_bfloat16);

}  // namespace lockstep
