// Adds a bias to sums of products and applies an activation, where oneDNN does not.
#pragma once

#include "backend/cpu/kernel.hpp"

#include <lockstep/layers/activation.hpp>

#include <cstdint>

namespace lockstep {

/// Of a convolution or Dense layer. The sums have the layout of the output tensor.
class BiasActivation {
 public:
  BiasActivation() = default;
  /// `sums` may be the output itself if it is float32.
  BiasActivation(const KernelScope& scope, const float* sums);

  void run() const;

 private:
  template <typename T>
  void run_as() const;

  ActivationFunction activation_ = ActivationFunction::linear;
  ElementType type_ = ElementType::float32;
  std::int64_t planes_ = 0;  ///< blocks of channels of all examples; each is contiguous
  std::int64_t blocks_ = 1;  ///< of an example
  std::int64_t pixels_ = 1;
  std::int64_t block_ = 1;
  int threads_ = 1;
  const float* sums_ = nullptr;
  const float* bias_ = nullptr;
  void* y_ = nullptr;
};

}  // namespace lockstep
