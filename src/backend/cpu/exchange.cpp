// Around a sum over ranks: a part goes to where they sum, the sum comes back with the bias and the activation that had
// to wait for it. The sum itself is the communicator's.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/simd.hpp"
#include "core/vectorized.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep {

namespace {

/// Adds the bias to `pixels` cells of `block` channels each.
template <typename T>
LOCKSTEP_INLINE void add_bias(const float* sum, const float* bias, std::int64_t pixels, std::int64_t block, T* y) {
  std::int64_t channel = 0;
  for (; channel + simd::lanes <= block; channel += simd::lanes) {
    simd::Floats addend{};
    if (bias != nullptr) simd::load(bias + channel, addend);
    for (std::int64_t at = channel; at < pixels * block; at += block) {
      simd::Floats cell;
      simd::load(sum + at, cell);
      cell += addend;
      simd::store(cell, y + at);
    }
  }
  for (; channel < block; ++channel) {
    const float addend = bias != nullptr ? bias[channel] : 0.0F;
    for (std::int64_t at = channel; at < pixels * block; at += block) y[at] = sum[at] + addend;
  }
}

LOCKSTEP_VECTORIZED void finish_plane(const float* sum, const float* bias, std::int64_t pixels, std::int64_t block,
                                      float* y) {
  add_bias(sum, bias, pixels, block, y);
}
LOCKSTEP_VECTORIZED void finish_plane(const float* sum, const float* bias, std::int64_t pixels, std::int64_t block,
                                      BFloat16* y) {
  add_bias(sum, bias, pixels, block, y);
}

/// A layer's outputs, summed, become the output tensor. They lie alike.
template <typename T>
class FinishSum final : public Kernel {
 public:
  explicit FinishSum(const KernelScope& scope)
      : activation_(scope.operation.activation),
        rows_(static_cast<std::int64_t>(scope.rows)),
        blocks_(scope.output().channels / scope.output().block),
        pixels_(scope.output().height * scope.output().width),
        block_(scope.output().block),
        threads_(scope.threads),
        sum_(scope.weights(scope.operation.sum)),
        y_(scope.value<T>(scope.operation.output)) {
    if (scope.layer().parameters.size() > 1) bias_ = scope.weights(scope.operation.parameter + 1);
  }

  void run(const StepContext& /*context*/) override {
    const std::int64_t size = pixels_ * block_;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1 && pixels_ > 1)
    for (std::int64_t part = 0; part < rows_ * blocks_; ++part) {
      const float* const bias = bias_ != nullptr ? bias_ + part % blocks_ * block_ : nullptr;
      finish_plane(sum_ + part * size, bias, pixels_, block_, y_ + part * size);
      apply_activation(activation_, y_ + part * size, static_cast<std::size_t>(size));
    }
  }

 private:
  ActivationFunction activation_;
  std::int64_t rows_;
  std::int64_t blocks_;  ///< of channels, of which each lies for itself
  std::int64_t pixels_;
  std::int64_t block_;
  int threads_;
  const float* sum_;
  const float* bias_ = nullptr;
  T* y_;
};

template <typename T>
class ExchangeGradient final : public Kernel {
 public:
  explicit ExchangeGradient(const KernelScope& scope)
      : offers_(scope.operation.kind == OperationKind::offer_gradient),
        count_(static_cast<std::int64_t>(scope.rows) * scope.output().elements()),
        gradient_(scope.gradient<T>(scope.operation.output)),
        part_(scope.weights_gradient(scope.operation.sum)),
        sum_(scope.weights(scope.operation.sum)) {}

  void run(const StepContext& /*context*/) override {
    if (offers_) {
      std::copy_n(gradient_, count_, part_);
    } else {
      std::copy_n(sum_, count_, gradient_);
    }
  }

 private:
  bool offers_;
  std::int64_t count_;
  T* gradient_;
  float* part_;
  const float* sum_;
};

class Zeros final : public Kernel {
 public:
  explicit Zeros(void* memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}
  void run(const StepContext& /*context*/) override { std::memset(memory_, 0, bytes_); }

 private:
  void* memory_;
  std::size_t bytes_;
};

}  // namespace

std::unique_ptr<Kernel> make_exchange(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    using T = decltype(zero);
    if (scope.operation.kind == OperationKind::finish_sum) return std::make_unique<FinishSum<T>>(scope);
    return std::make_unique<ExchangeGradient<T>>(scope);
  });
}

std::unique_ptr<Kernel> make_nothing(const KernelScope& scope) {
  const Operation& operation = scope.operation;
  const bool weighted = operation.kind == OperationKind::dense || operation.kind == OperationKind::convolution;
  if (weighted && operation.sum >= 0) {
    return std::make_unique<Zeros>(scope.weights_gradient(operation.sum),
                                   scope.rows * static_cast<std::size_t>(scope.output().elements()) * sizeof(float));
  }
  const bool backward = operation.kind > OperationKind::loss && operation.input_gradient;
  if (!backward || scope.input().elements() == 0) return nullptr;
  const std::size_t size = scope.input().type == ElementType::bfloat16 ? sizeof(BFloat16) : sizeof(float);
  return std::make_unique<Zeros>(scope.gradient<void>(operation.input),
                                 scope.rows * static_cast<std::size_t>(scope.input().elements()) * size);
}

}  // namespace lockstep
