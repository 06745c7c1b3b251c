// Bare kernels: a layer's cost when only oneDNN's primitive runs, over the whole layer, in the layout that the
// primitive prefers. Benchmarks compare training steps with them.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::bench {

/// One algorithm for one part of an operation.
struct BareKernel {
  std::string part;       ///< "forward", "data", "weights", "pass"
  std::string algorithm;  ///< "direct" or "winograd"; else the kind of primitive, or "loop"
  std::string implementation;
  std::function<void()> run;
};

/// All algorithms for all parts of a forward or backward operation; empty for operations without a oneDNN primitive
/// (gather, loss, embedding). `graph` must have been laid out.
[[nodiscard]] std::vector<BareKernel> bare_kernels(const onednn::Context& context, const Graph& graph,
                                                   const Operation& operation, std::size_t rows);

/// Whether oneDNN has a primitive for this kind of operation.
[[nodiscard]] bool has_bare_kernel(const Operation& operation) noexcept;

/// Whether oneDNN may have a Winograd algorithm for this operation.
[[nodiscard]] bool may_have_winograd(const Graph& graph, const Operation& operation);

/// Fills with values that are neither zero nor denormal, since some CPUs multiply those at other speeds.
void fill_like_weights(std::span<float> values);

/// One pass of SGD, with or without momentum, or of Adam over `elements` floats, as a plain loop. The gradient is the
/// sum of `sources` (1 or 2) arrays.
[[nodiscard]] BareKernel bare_update(const Optimizer& optimizer, std::size_t elements, int sources, bool low_precision);

}  // namespace lockstep::bench
