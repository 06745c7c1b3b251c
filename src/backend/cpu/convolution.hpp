// What layouts and kernels of a convolution share: its descriptors in oneDNN's terms.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"

#include <cstddef>

namespace lockstep {

/// The tensor's examples as oneDNN describes them: {rows, channels, height, width}.
[[nodiscard]] dnnl::memory::desc descriptor_of(const TensorSpec& tensor, std::size_t rows);

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

/// The arena's weights seen as Keras orders them: [height][width][in][out].
[[nodiscard]] dnnl::memory::desc keras_kernel_descriptor(const LayerInfo& layer);

/// Chooses the layout of every tensor from the convolutions' wishes. Blocks of channels are fastest, but one
/// convolution that cannot have them (6 filters, or an output that must lie as Keras orders it) would fall to oneDNN's
/// reference code, a hundred times slower: then all lie in Keras' order, which every kernel knows.
void choose_layouts(const onednn::Context& context, Graph& graph, std::size_t rows);

}  // namespace lockstep
