// Optimizers over flat arenas on the device.
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/gradient_norm.hpp"
#include "backend/cuda/step_arguments.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

namespace lockstep::cuda {

/// Enqueues the update of the elements [begin, end) on `stream`. Their gradients must be all-reduced. `gradient_norm`
/// holds the clip scales if the optimizer clips by norm.
void apply_optimizer(cudaStream_t stream, const Graph& graph, const Arenas& arenas, std::size_t begin, std::size_t end,
                     const Optimizer& optimizer, const GradientNorm& gradient_norm, const StepArguments* arguments);

/// Enqueues the conversion of all weights to their low-precision copies.
void round_weights_to_bfloat16(cudaStream_t stream, const Arenas& arenas);

/// Enqueues the copy of the step's metric sums to its metrics slot, in memory that the host reads.
void publish_metrics(cudaStream_t stream, std::span<const float> metrics, float* slots, const StepArguments* arguments);

}  // namespace lockstep::cuda
