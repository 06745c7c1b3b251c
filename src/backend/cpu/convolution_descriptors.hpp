// A convolution as oneDNN describes it: geometry, layouts and implementation. Algorithms are chosen and kernels are
// created from the same descriptors.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/convolution_table.hpp"
#include "backend/cpu/onednn.hpp"

#include <cstddef>

namespace lockstep {

struct KernelScope;

/// A convolution of a graph over a number of examples. Its kernels read and write the layouts of `choice`, whatever the
/// layouts of the graph's tensors. All references must outlive it.
///
/// Its windows slide over the *image* and give the *map*. An ordinary convolution reads the image and writes the map. A
/// transposed one computes what is the image's gradient in an ordinary one: it reads the map and writes the image.
struct ConvolutionProblem {
  const onednn::Context& context;
  const Graph& graph;
  const Operation& operation;
  std::size_t num_examples = 0;
  ConvolutionChoice choice;

  /// The input in the layout that the kernels read.
  [[nodiscard]] TensorSpec input() const;
  /// What the forward kernel writes: in its own layout; float32 for a partial sum and for a transposed convolution.
  [[nodiscard]] TensorSpec output() const;
  /// What the backward kernels read. The gradient of a float32 output is converted to the input's type.
  [[nodiscard]] TensorSpec output_gradient() const;
};

/// What kind of kernels an operation takes.
[[nodiscard]] ConvolutionKind kind_of(const Graph& graph, const Operation& operation);

/// The convolution that a kernel computes, forward or backward.
[[nodiscard]] ConvolutionProblem problem_of(const KernelScope& scope);

/// True for a row-parallel convolution: it computes a partial sum over its shard of the input channels. Bias and
/// activation are applied after the sum over all ranks.
[[nodiscard]] bool produces_partial_sum(const Graph& graph, const Operation& operation);

[[nodiscard]] onednn::Geometry convolution_geometry(const Windows& windows);

// oneDNN's direct passes of an ordinary convolution from image to map, with weights in the layout that it prefers. Each
// throws dnnl::error if oneDNN does not implement the pass, and may return its reference kernel, which is a hundred
// times slower. A transposed convolution computes its output by `describe_backward_data`, and the gradient of its input
// by `describe_forward`.
[[nodiscard]] dnnl::convolution_forward::primitive_desc describe_forward(const ConvolutionProblem& problem);
[[nodiscard]] dnnl::convolution_backward_data::primitive_desc describe_backward_data(const ConvolutionProblem& problem);
[[nodiscard]] dnnl::convolution_backward_weights::primitive_desc describe_backward_weights(
    const ConvolutionProblem& problem);

/// The layout of the float32 weights in the arenas, if `problem` is for the examples of Graph::layout_examples: the one
/// that forward reads, in bfloat16 the one that backward writes, and Keras' for our own kernels.
[[nodiscard]] dnnl::memory::desc weight_layout_of(const ConvolutionProblem& problem);

/// The weights in Keras' order: [height][width][in / groups][out]; of a transposed convolution
/// [height][width][out][in].
[[nodiscard]] dnnl::memory::desc keras_kernel_descriptor(const Graph& graph, const Operation& operation);

}  // namespace lockstep
