// In which precision a model computes.
#pragma once

namespace lockstep {

/// mixed_bfloat16: weights are float32; activations and products are bfloat16, except for the model's outputs.
/// automatic: as the model's layers say, which are float32 unless a file or Architecture::set_precision() says
/// otherwise.
enum class Precision { automatic, float32, mixed_bfloat16 };

}  // namespace lockstep
