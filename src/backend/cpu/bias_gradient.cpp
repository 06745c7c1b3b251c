// See bias_gradient.hpp. Adds the pixels of each example first and then the examples, because short sums have smaller
// rounding errors.
#include "backend/cpu/bias_gradient.hpp"

#include "backend/cpu/simd.hpp"
#include "core/bfloat16.hpp"
#include "core/vector_width.hpp"

#include <algorithm>

namespace lockstep {

namespace {

/// The sum of `pixels` vectors of `block` channels.
template <typename T>
LOCKSTEP_INLINE void add_pixels(const T* values, std::int64_t pixels, std::int64_t block, float* sums) {
  std::int64_t channel = 0;
  for (; channel + simd::lanes <= block; channel += simd::lanes) {
    simd::Floats sum{};
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
      simd::Floats value;
      simd::load(values + pixel * block + channel, value);
      sum += value;
    }
    simd::store(sum, sums + channel);
  }
  for (; channel < block; ++channel) {
    float sum = 0;
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel) sum += values[pixel * block + channel];
    sums[channel] = sum;
  }
}

void add_plane(const float* values, std::int64_t pixels, std::int64_t block, float* sums) {
  run_vectorized([=] { add_pixels(values, pixels, block, sums); });
}
void add_plane(const BFloat16* values, std::int64_t pixels, std::int64_t block, float* sums) {
  run_vectorized([=] { add_pixels(values, pixels, block, sums); });
}

}  // namespace

BiasGradient::BiasGradient(const KernelScope& scope)
    : num_examples_(static_cast<std::int64_t>(scope.num_examples)),
      blocks_(scope.output().channels / scope.output().block()),
      pixels_(scope.output().height * scope.output().width),
      block_(scope.output().block()),
      threads_(scope.threads),
      type_(scope.output().type) {
  if (!scope.has_bias()) return;
  is_first_ = scope.operation.microbatch.index == 0;
  output_gradient_ = scope.gradient<std::byte>(scope.operation.output);
  bias_gradient_ = scope.weights_gradient(scope.operation.parameter + 1);
  of_examples_ = AlignedBuffer(static_cast<std::size_t>(num_examples_ * blocks_ * block_) * sizeof(float));
}

void BiasGradient::run() {
  if (bias_gradient_ == nullptr) return;
  if (type_ == ElementType::bfloat16) {
    sum_examples(reinterpret_cast<const BFloat16*>(output_gradient_));
  } else {
    sum_examples(reinterpret_cast<const float*>(output_gradient_));
  }
  const std::int64_t channels = blocks_ * block_;
  const float* of_example = of_examples_.as<float>().data();
  if (is_first_) std::fill_n(bias_gradient_, channels, 0.0F);
  for (std::int64_t r = 0; r < num_examples_; ++r, of_example += channels) {
    for (std::int64_t c = 0; c < channels; ++c) bias_gradient_[c] += of_example[c];
  }
}

template <typename T>
void BiasGradient::sum_examples(const T* gradient) {
  float* const sums = of_examples_.as<float>().data();
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
  for (std::int64_t plane = 0; plane < num_examples_ * blocks_; ++plane) {
    add_plane(gradient + plane * pixels_ * block_, pixels_, block_, sums + plane * block_);
  }
}

}  // namespace lockstep
