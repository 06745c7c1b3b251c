// The passes of a Winograd convolution over the images of a microbatch. Results are the same bits for any number of
// images in a call and any number of threads: sums over channels and over tiles have one order.
#pragma once

#include "backend/cpu/winograd/kernels.hpp"

#include <cstddef>

namespace lockstep::winograd {

/// What a pass needs besides its arguments. All passes of a thread team may share the scratch memory.
struct Resources {
  const KernelTable& kernels;
  float* scratch = nullptr;  ///< scratch_elements floats
  int threads = 1;
};

[[nodiscard]] std::size_t scratch_elements(const Geometry& geometry, int threads);

/// Transforms weights in Keras' order to `transformed`, Geometry::weight_elements() floats. `flipped`: for the data
/// gradient, flips the forward pass's weights along both axes and swaps input and output channels.
void transform_weights(const Resources& resources, const Geometry& geometry, const float* weights, bool flipped,
                       float* transformed);
/// The gradient of weights in Keras' order.
void transform_weight_gradients(const Resources& resources, const Geometry& geometry, const float* sums,
                                float* gradients);

/// Computes `images` images. The data gradient is a convolution with flipped weights.
void convolve(const Resources& resources, const Geometry& geometry, std::int64_t images, const ConstImages& x,
              const float* transformed_weights, const Epilogue& epilogue, const Images& y);

/// Adds the images' weight gradient to `sums`, the gradients of transformed weights.
void add_weight_gradients(const Resources& resources, const Geometry& geometry, std::int64_t images,
                          const ConstImages& x, const ConstImages& y_gradient, float* sums);

}  // namespace lockstep::winograd
