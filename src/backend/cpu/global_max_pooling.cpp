// Global max pooling as loops over blocks of channels. Equal largest values share the gradient, as Keras' ops.max has
// it.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/simd.hpp"
#include "core/vector_width.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep {

namespace {

constexpr std::int64_t tile = simd::lanes;  // channels

/// A block of channels of an image.
struct Plane {
  std::int64_t pixels;
  std::int64_t block;
};

/// The largest value of each channel of a plane.
template <typename T>
LOCKSTEP_INLINE void max_of_plane(const Plane& s, const T* x, T* y) {
  std::int64_t c = 0;
  for (; c + tile <= s.block; c += tile) {
    simd::Floats best;
    simd::load(x + c, best);
    for (std::int64_t pixel = 1; pixel < s.pixels; ++pixel) {
      simd::Floats value;
      simd::load(x + pixel * s.block + c, value);
      best = (best >= value) ? best : value;
    }
    simd::store_exact(best, y + c);
  }
  for (; c < s.block; ++c) {
    float best = x[c];
    for (std::int64_t pixel = 1; pixel < s.pixels; ++pixel) {
      const float value = x[pixel * s.block + c];
      best = best >= value ? best : value;
    }
    y[c] = best;
  }
}

/// Shares a plane's gradients equally among the values that are the largest of their channels.
template <typename T>
LOCKSTEP_INLINE void share_gradients(const Plane& s, const T* x, const T* y, const T* y_gradient, T* x_gradient) {
  for (std::int64_t c = 0; c < s.block; ++c) {
    const auto largest = static_cast<float>(y[c]);
    float num_largest = 0;
    for (std::int64_t pixel = 0; pixel < s.pixels; ++pixel) {
      num_largest += static_cast<float>(x[pixel * s.block + c]) == largest ? 1.0F : 0.0F;
    }
    const float share = static_cast<float>(y_gradient[c]) / num_largest;
    for (std::int64_t pixel = 0; pixel < s.pixels; ++pixel) {
      const std::int64_t at = pixel * s.block + c;
      x_gradient[at] = static_cast<float>(x[at]) == largest ? share : 0.0F;
    }
  }
}

template <typename T>
class GlobalMaxPooling final : public Kernel {
 public:
  explicit GlobalMaxPooling(const KernelScope& scope)
      : plane_{scope.input().height * scope.input().width, scope.input().block()},
        planes_(static_cast<std::int64_t>(scope.num_examples) * scope.input().channels / scope.input().block()),
        input_activation_(scope.operation.input_activation),
        x_(scope.value<T>(scope.operation.input)),
        y_(scope.value<T>(scope.operation.output)),
        x_gradient_(scope.gradient<T>(scope.operation.input)),
        y_gradient_(scope.gradient<T>(scope.operation.output)),
        backward_(scope.is_backward()),
        threads_(scope.threads) {}

  void run(const StepContext& /*context*/) override {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t p = 0; p < planes_; ++p) {
      if (backward_) {
        backward(p);
      } else {
        forward(p);
      }
    }
  }

 private:
  void forward(std::int64_t p) const {
    const T* const x = x_ + p * plane_.pixels * plane_.block;
    T* const y = y_ + p * plane_.block;
    const Plane plane = plane_;
    run_vectorized([=] { max_of_plane(plane, x, y); });
  }

  void backward(std::int64_t p) const {
    const std::int64_t elements = plane_.pixels * plane_.block;
    const T* const x = x_ + p * elements;
    T* const x_gradient = x_gradient_ + p * elements;
    const T* const y = y_ + p * plane_.block;
    const T* const y_gradient = y_gradient_ + p * plane_.block;
    const Plane plane = plane_;
    run_vectorized([=] { share_gradients(plane, x, y, y_gradient, x_gradient); });
    apply_derivative(input_activation_, x, x_gradient, static_cast<std::size_t>(elements));
  }

  Plane plane_;
  std::int64_t planes_;
  ActivationFunction input_activation_;  ///< fused into the input
  const T* x_;
  T* y_;
  T* x_gradient_;
  const T* y_gradient_;
  bool backward_;
  int threads_;
};

}  // namespace

std::unique_ptr<Kernel> make_global_max_pooling(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<GlobalMaxPooling<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
