// Our own convolution for images of few channels: gray or color input of a model. oneDNN's bfloat16 kernels take twice
// as long on them as its float32 kernels, because they pad the channels.
//
// The image is widened to float32 and padded once, the kernel is rounded to the tensors' type, products and sums are
// float32. Weight gradients are summed image by image, in order, so neither microbatches nor threads change their bits.
#pragma once

#include "backend/cpu/kernel.hpp"
#include "core/aligned_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

/// Whether the kernels below can compute a convolution with these tensors, apart from the layout of its output, which
/// must be nhwc or nChw16c.
[[nodiscard]] bool supports_few_channels(const TensorSpec& input, const TensorSpec& output);

/// The kernel of the arena, [height][width][in][out], is Keras' order.
[[nodiscard]] std::unique_ptr<Kernel> make_few_channels_forward(const KernelScope& scope);

/// The gradients of kernel and bias. Such a convolution reads the model's input, which needs no gradient.
[[nodiscard]] std::unique_ptr<Kernel> make_few_channels_weights(const KernelScope& scope);

}  // namespace lockstep
