// Our own Winograd convolution F(4 x 4, 3 x 3), on blocks of 16 channels with AVX-512 and of 8 with AVX2. It computes
// in float32, from and to images of float32 or, with AVX-512, of bfloat16.
//
// A forward pass applies bias and relu where it writes results, and a backward pass relu's derivative. Weights are
// transformed once a step. Weight gradients are summed tile by tile, image by image, over all microbatches, so their
// bits depend on neither microbatches nor threads.
#pragma once

#include "backend/cpu/convolution_descriptors.hpp"
#include "backend/cpu/kernel.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

/// Whether this algorithm computes the convolution `problem.operation` in the layouts of `problem.choice`.
[[nodiscard]] bool supports_winograd(const ConvolutionProblem& problem);

/// The work of one pass, in the unit of the table of convolutions: as many multiply-adds of a direct convolution would
/// take as long, if it had many channels and its images were divided into full tiles.
[[nodiscard]] double winograd_work(const Graph& graph, const Operation& operation, std::size_t num_examples);

/// Scratch memory for one kernel of a convolution or its backward pass, in bytes.
[[nodiscard]] std::size_t winograd_scratch_bytes(const Graph& graph, const Operation& operation, int threads);

[[nodiscard]] std::unique_ptr<Kernel> make_winograd_forward(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_winograd_backward(const KernelScope& scope);

}  // namespace lockstep
