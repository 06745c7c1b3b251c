// A convolution as oneDNN describes it: geometry, tensor layouts and implementation. Layouts are chosen and kernels are
// created from the same descriptors.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"

#include <cstddef>

namespace lockstep {

/// True for a row-parallel convolution: it computes a partial sum over its shard of the input channels. Bias and
/// activation are applied after the sum over all ranks.
[[nodiscard]] bool produces_partial_sum(const Graph& graph, const Operation& operation);

/// The tensor that the convolution itself writes. Partial sums are float32.
[[nodiscard]] TensorSpec convolution_output_of(const Graph& graph, const Operation& operation);

/// The descriptor of a convolution's input with which to ask oneDNN for an implementation. Every plain layout of a
/// one-channel image describes the same memory, so for a blocked output the layout is left open: with a named layout,
/// oneDNN 3.7 falls back to its reference code.
[[nodiscard]] dnnl::memory::desc source_for_layout_query(const TensorSpec& tensor, const TensorSpec& output,
                                                         std::size_t num_examples);

/// The forward convolution over `num_examples` examples that reads `src` and writes `dst`. Either may have
/// format_tag::any.
[[nodiscard]] dnnl::convolution_forward::primitive_desc describe_forward(const onednn::Context& context,
                                                                         const Graph& graph, const Operation& operation,
                                                                         std::size_t num_examples,
                                                                         const dnnl::memory::desc& src,
                                                                         const dnnl::memory::desc& dst);

/// A convolution over `num_examples` examples. Tensors have the graph's layouts, weights the layout that oneDNN
/// prefers.
struct ConvolutionDescriptors {
  ConvolutionDescriptors(const onednn::Context& context, const Graph& graph, const Operation& operation,
                         std::size_t num_examples);

  dnnl::convolution_forward::primitive_desc forward;
  dnnl::convolution_backward_weights::primitive_desc backward_weights;
  /// The layout of the float32 weights in the arenas, if `num_examples` is the capacity: the one that forward reads, or
  /// in bfloat16 the one that backward writes.
  dnnl::memory::desc weight_layout;
  onednn::Geometry geometry;
};

/// The convolution that computes the input's gradient.
[[nodiscard]] dnnl::convolution_backward_data::primitive_desc describe_backward_data(
    const onednn::Context& context, const Graph& graph, const Operation& operation, std::size_t num_examples,
    const ConvolutionDescriptors& descriptors);

/// The weights in Keras' order: [height][width][in][out].
[[nodiscard]] dnnl::memory::desc keras_kernel_descriptor(const LayerInfo& layer);

}  // namespace lockstep
