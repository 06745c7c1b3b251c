// Our own weight gradient of depthwise convolutions, for kernels other than 3 taps wide: oneDNN computes these as one
// matrix product per channel, which takes twenty times as long as their forward pass.
//
// Each channel is by itself, so vectors hold 16 channels. Gradients are summed image by image, in order, so neither
// microbatches nor threads change their bits.
#pragma once

#include "backend/cpu/kernel.hpp"

#include <memory>

namespace lockstep {

/// Whether the kernel below computes the gradient for tensors like these.
[[nodiscard]] bool supports_depthwise_weights(const TensorSpec& input, const TensorSpec& output);

/// The gradients of kernel and bias. The kernel of the arena has Keras' order, [height][width][channel].
[[nodiscard]] std::unique_ptr<Kernel> make_depthwise_weights(const KernelScope& scope);

}  // namespace lockstep
