// A convolution in oneDNN's terms: geometry, the layouts of its tensors, and which implementation computes it. Layouts
// are chosen and kernels are made from the same descriptors.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"

#include <cstddef>

namespace lockstep {

/// True for a convolution of a slice of the input channels: what it gives is a part of a sum over the ranks, to which
/// bias and activation are added later.
[[nodiscard]] bool gives_part(const Graph& graph, const Operation& operation);

/// What the convolution itself writes. Parts are summed up in float32.
[[nodiscard]] TensorSpec result_of(const Graph& graph, const Operation& operation);

/// Before blocks, one channel has no layout: whatever plain descriptor oneDNN picks describes the same memory. Asking
/// it to pick finds kernels for such images that a named layout misses (oneDNN 3.7 falls to its reference code
/// otherwise).
[[nodiscard]] dnnl::memory::desc source_for_choice(const TensorSpec& tensor, const TensorSpec& output,
                                                   std::size_t rows);

/// The forward convolution over `rows` examples that reads `src` and writes `dst`; either may leave its layout open.
[[nodiscard]] dnnl::convolution_forward::primitive_desc describe_forward(const onednn::Context& context,
                                                                         const Graph& graph, const Operation& operation,
                                                                         std::size_t rows,
                                                                         const dnnl::memory::desc& src,
                                                                         const dnnl::memory::desc& dst);

/// A convolution over `rows` examples, its tensors laid out as the graph says, its weights as oneDNN likes them.
struct ConvolutionDescriptors {
  ConvolutionDescriptors(const onednn::Context& context, const Graph& graph, const Operation& operation,
                         std::size_t rows);

  dnnl::convolution_forward::primitive_desc forward;
  dnnl::convolution_backward_weights::primitive_desc backward_weights;
  /// How the float32 weights lie in the arenas, if `rows` is the capacity: as forward reads them (in bfloat16 as
  /// backward writes them).
  dnnl::memory::desc master;
  onednn::Geometry geometry;
};

/// The input's gradient, where it is wanted.
[[nodiscard]] dnnl::convolution_backward_data::primitive_desc describe_backward_data(
    const onednn::Context& context, const Graph& graph, const Operation& operation, std::size_t rows,
    const ConvolutionDescriptors& descriptors);

/// The arena's weights seen as Keras orders them: [height][width][in][out].
[[nodiscard]] dnnl::memory::desc keras_kernel_descriptor(const LayerInfo& layer);

}  // namespace lockstep
