// The compiled form of a graph on a CPU: memory for the largest local batch, and kernels for each local batch size.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

/// Whether the operation is a convolution whose kernel decides the layout of its weights: a shared layer's first call.
[[nodiscard]] bool is_layout_of_weights_from(const Graph& graph, const Operation& operation);

[[nodiscard]] std::unique_ptr<Executable> make_cpu_executable(const Graph& graph, std::vector<Operation> operations,
                                                              const Arenas& arenas, std::size_t capacity,
                                                              const onednn::Context& dnnl, int threads);

}  // namespace lockstep
