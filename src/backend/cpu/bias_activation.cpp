// See bias_activation.hpp.
#include "backend/cpu/bias_activation.hpp"

#include "backend/cpu/activation.hpp"
#include "backend/cpu/simd.hpp"
#include "core/vector_width.hpp"

#include <cstddef>

namespace lockstep {

namespace {

/// Adds the bias to `pixels` vectors of `block` channels.
template <typename T>
LOCKSTEP_INLINE void add_bias(const float* sum, const float* bias, std::int64_t pixels, std::int64_t block, T* y) {
  std::int64_t channel = 0;
  for (; channel + simd::lanes <= block; channel += simd::lanes) {
    simd::Floats addend{};
    if (bias != nullptr) simd::load(bias + channel, addend);
    for (std::int64_t at = channel; at < pixels * block; at += block) {
      simd::Floats pixel;
      simd::load(sum + at, pixel);
      pixel += addend;
      simd::store(pixel, y + at);
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

}  // namespace

BiasActivation::BiasActivation(const KernelScope& scope, const float* sums)
    : activation_(scope.operation.activation),
      type_(scope.output().type),
      blocks_(scope.output().channels / scope.output().block()),
      pixels_(scope.output().height * scope.output().width),
      block_(scope.output().block()),
      threads_(scope.threads),
      sums_(sums),
      bias_(scope.has_bias() ? scope.weights(scope.operation.parameter + 1) : nullptr),
      y_(scope.value<void>(scope.operation.output)) {
  planes_ = static_cast<std::int64_t>(scope.num_examples) * blocks_;
}

void BiasActivation::run() const {
  if (type_ == ElementType::bfloat16) {
    run_as<BFloat16>();
  } else {
    run_as<float>();
  }
}

template <typename T>
void BiasActivation::run_as() const {
  T* const y = static_cast<T*>(y_);
  const std::int64_t size = pixels_ * block_;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1 && pixels_ > 1)
  for (std::int64_t plane = 0; plane < planes_; ++plane) {
    const float* const bias = bias_ != nullptr ? bias_ + plane % blocks_ * block_ : nullptr;
    finish_plane(sums_ + plane * size, bias, pixels_, block_, y + plane * size);
    apply_activation(activation_, y + plane * size, static_cast<std::size_t>(size));
  }
}

}  // namespace lockstep
