// The bare kernels: what a layer costs when nothing but the library's primitive runs, over the whole layer, in the
// layout it likes best. What a step is measured against.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::bench {

/// One way to compute one part of an operation.
struct BareKernel {
  std::string part;  ///< "forward", "data", "weights", "pass"
  std::string way;   ///< "direct", "winograd", "inner_product", "pooling", "loop"
  std::string implementation;
  std::function<void()> run;
};

/// Every way to compute every part of a forward or backward operation; empty where the library has no such thing
/// (gather, loss). `graph` has its layouts.
[[nodiscard]] std::vector<BareKernel> bare_kernels(const onednn::Context& context, const Graph& graph,
                                                   const Operation& operation, std::size_t rows);

/// Whether there are any, known before one is made.
[[nodiscard]] bool has_bare_kernel(const Operation& operation) noexcept;

/// Whether oneDNN may have more than one way for this operation.
[[nodiscard]] bool may_have_winograd(const Graph& graph, const Operation& operation);

/// Neither zero nor denormal, which some CPUs multiply at other speeds.
void fill_like_weights(std::span<float> values);

/// One pass of the optimizer over `elements` floats, the gradient being the sum of one or two `sources`. A plain loop.
[[nodiscard]] BareKernel bare_update(const Optimizer& optimizer, std::size_t elements, int sources, bool low_precision);

}  // namespace lockstep::bench
