// The bias gradient of a convolution whose kernel gradient oneDNN does not compute, and of a row-parallel one: there
// every rank computes the full gradient with the same loop, so all ranks get the same bits. (oneDNN computes it
// together with the kernel's gradient, and may add in a different order when ranks have different numbers of input
// channels.)
#pragma once

#include "backend/cpu/kernel.hpp"
#include "core/aligned_buffer.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep {

class BiasGradient {
 public:
  /// Does nothing.
  BiasGradient() = default;
  /// For a convolution's backward. Does nothing if the layer has no bias.
  explicit BiasGradient(const KernelScope& scope);

  void run();

 private:
  template <typename T>
  void sum_examples(const T* gradient);

  std::int64_t num_examples_ = 0;
  std::int64_t blocks_ = 0;  ///< blocks of channels; each is stored contiguously
  std::int64_t pixels_ = 0;
  std::int64_t block_ = 0;
  int threads_ = 1;
  bool is_first_ = true;  ///< of the microbatches; the others add to it
  ElementType type_ = ElementType::float32;
  const std::byte* output_gradient_ = nullptr;
  float* bias_gradient_ = nullptr;
  AlignedBuffer of_examples_;  ///< sums by example and channel
};

}  // namespace lockstep
