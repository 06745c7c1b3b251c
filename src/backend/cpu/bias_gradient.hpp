// The gradient of a convolution's bias where every rank computes it for itself, though each convolves other channels:
// the same loop on all of them, so that it is the same to the last bit. (oneDNN's, computed with the kernel's gradient,
// may add in another order where there are fewer channels.)
#pragma once

#include "backend/cpu/kernel.hpp"
#include "core/aligned_buffer.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep {

class BiasGradient {
 public:
  /// Of no layer: does nothing.
  BiasGradient() = default;
  /// Of a convolution's backward; does nothing where the layer has no bias.
  explicit BiasGradient(const KernelScope& scope);

  void run();

 private:
  template <typename T>
  void sum_examples(const T* gradient);

  std::int64_t rows_ = 0;
  std::int64_t blocks_ = 0;  ///< of channels, of which each lies for itself
  std::int64_t pixels_ = 0;
  std::int64_t block_ = 0;
  int threads_ = 1;
  ElementType type_ = ElementType::float32;
  const std::byte* output_gradient_ = nullptr;
  float* bias_gradient_ = nullptr;
  AlignedBuffer of_examples_;  ///< by example and channel
};

}  // namespace lockstep
