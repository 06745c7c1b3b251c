// The kernels before and after an all-reduce of partial sums. They copy this rank's partial sum to the arena, where the
// communicator all-reduces it, and the sum back to the tensor; for outputs they also apply bias and activation.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/simd.hpp"
#include "core/vector_width.hpp"

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

void finish_plane(const float* sum, const float* bias, std::int64_t pixels, std::int64_t block, float* y) {
  run_vectorized([=] { add_bias(sum, bias, pixels, block, y); });
}
void finish_plane(const float* sum, const float* bias, std::int64_t pixels, std::int64_t block, BFloat16* y) {
  run_vectorized([=] { add_bias(sum, bias, pixels, block, y); });
}

/// Applies bias and activation to a layer's summed outputs, which have the layout of the output tensor.
template <typename T>
class FinishPartialSum final : public Kernel {
 public:
  explicit FinishPartialSum(const KernelScope& scope)
      : activation_(scope.operation.activation),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        blocks_(scope.output().channels / scope.output().block()),
        pixels_(scope.output().height * scope.output().width),
        block_(scope.output().block()),
        threads_(scope.threads),
        sum_(scope.weights(*scope.operation.partial_sum)),
        y_(scope.value<T>(scope.operation.output)) {
    if (scope.layer().parameters.size() > 1) bias_ = scope.weights(scope.operation.parameter + 1);
  }

  void run(const StepContext& /*context*/) override {
    const std::int64_t size = pixels_ * block_;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1 && pixels_ > 1)
    for (std::int64_t plane = 0; plane < num_examples_ * blocks_; ++plane) {
      const float* const bias = bias_ != nullptr ? bias_ + plane % blocks_ * block_ : nullptr;
      finish_plane(sum_ + plane * size, bias, pixels_, block_, y_ + plane * size);
      apply_activation(activation_, y_ + plane * size, static_cast<std::size_t>(size));
    }
  }

 private:
  ActivationFunction activation_;
  std::int64_t num_examples_;
  std::int64_t blocks_;  ///< blocks of channels; each is stored contiguously
  std::int64_t pixels_;
  std::int64_t block_;
  int threads_;
  const float* sum_;
  const float* bias_ = nullptr;
  T* y_;
};

/// Copies the gradient to the arena before the all-reduce, or the sum back after it.
template <typename T>
class PartialGradientSum final : public Kernel {
 public:
  explicit PartialGradientSum(const KernelScope& scope)
      : starts_(scope.operation.kind == OperationKind::start_partial_gradient_sum),
        count_(static_cast<std::int64_t>(scope.num_examples) * scope.output().elements()),
        gradient_(scope.gradient<T>(scope.operation.output)),
        partial_(scope.weights_gradient(*scope.operation.partial_sum)),
        sum_(scope.weights(*scope.operation.partial_sum)) {}

  void run(const StepContext& /*context*/) override {
    if (starts_) {
      std::copy_n(gradient_, count_, partial_);
    } else {
      std::copy_n(sum_, count_, gradient_);
    }
  }

 private:
  bool starts_;
  std::int64_t count_;
  T* gradient_;
  float* partial_;
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

std::unique_ptr<Kernel> make_finish_partial_sum(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<FinishPartialSum<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_partial_gradient_sum(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<PartialGradientSum<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_empty_shard(const KernelScope& scope) {
  const Operation& operation = scope.operation;
  if (traits_of(operation).has_kernel && operation.partial_sum) {
    return std::make_unique<Zeros>(
        scope.weights_gradient(*operation.partial_sum),
        scope.num_examples * static_cast<std::size_t>(scope.output().elements()) * sizeof(float));
  }
  const bool makes_gradient = is_backward(operation) && operation.input_gradient;
  if (!makes_gradient || scope.input().elements() == 0) return nullptr;
  return std::make_unique<Zeros>(
      scope.gradient<void>(operation.input),
      scope.num_examples * static_cast<std::size_t>(scope.input().elements()) * size_of(scope.input().type));
}

}  // namespace lockstep
