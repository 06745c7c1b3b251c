// Optimizers over flat arenas on the device.
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/gradient_norms.hpp"
#include "backend/cuda/step_arguments.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lockstep::cuda {

/// Enqueues the update of a share, whose gradients are summed already, on `stream`. `norms` has the scales where the
/// optimizer clips by norm.
void update_share(cudaStream_t stream, const Graph& graph, const Arenas& arenas, std::size_t begin, std::size_t end,
                  const Optimizer& optimizer, const GradientNorms& norms, const StepArguments* arguments);

/// Enqueues the low-precision copies of all weights.
void round_weights(cudaStream_t stream, const Arenas& arenas);

/// Enqueues the copy of the step's metric sums to the slot that its arguments name, in memory that the host reads.
void publish_metrics(cudaStream_t stream, const float* metrics, float* slots, const StepArguments* arguments);

}  // namespace lockstep::cuda
