// See depthwise.hpp. A few neighbouring taps of the kernel stay in vector registers while a row of the image and the
// row of gradients above it are read once.
#include "backend/cpu/depthwise.hpp"

#include "backend/cpu/bias_gradient.hpp"
#include "backend/cpu/simd.hpp"
#include "core/aligned_buffer.hpp"
#include "core/vector_width.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

namespace {

constexpr std::int64_t lanes = simd::lanes;

struct DepthwiseShape {
  explicit DepthwiseShape(const KernelScope& scope)
      : rows(scope.operation.windows.rows),
        columns(scope.operation.windows.columns),
        block(scope.input().block()),
        blocks(scope.input().channels / block) {}

  [[nodiscard]] std::int64_t channels() const { return blocks * block; }
  [[nodiscard]] std::int64_t num_taps() const { return rows.kernel * columns.kernel; }
  [[nodiscard]] std::int64_t x_plane() const { return rows.input * columns.input * block; }
  [[nodiscard]] std::int64_t y_plane() const { return rows.output() * columns.output() * block; }

  Window rows, columns;
  std::int64_t block;   ///< channels that are contiguous
  std::int64_t blocks;  ///< of an image
};

/// Adds the products of a row of gradients and a row of the image to the sums of `taps` taps of the kernel, from
/// column `first` on. Columns outside the image are zeros.
template <int taps, typename T>
LOCKSTEP_INLINE void add_row(const DepthwiseShape& s, std::int64_t first, const T* x, const T* y_gradient,
                             std::int64_t y_width, simd::Floats* sums) {
  const Window& c = s.columns;
  for (std::int64_t w = 0; w < y_width; ++w) {
    simd::Floats gradient;
    simd::load(y_gradient + w * s.block, gradient);
    const std::int64_t left = w * c.stride - c.pad_before() + first * c.dilation;
    const bool is_inside = left >= 0 && left + (taps - 1) * c.dilation < c.input;
    for (int k = 0; k < taps; ++k) {
      const std::int64_t column = left + k * c.dilation;
      if (!is_inside && (column < 0 || column >= c.input)) continue;
      simd::Floats value;
      simd::load(x + column * s.block, value);
      sums[k] += gradient * value;
    }
  }
}

/// The gradients of `taps` taps of a kernel's row for 16 channels.
template <int taps, typename T>
LOCKSTEP_INLINE void sum_taps(const DepthwiseShape& s, std::int64_t row, std::int64_t first, const T* x,
                              const T* y_gradient, float* result) {
  simd::Floats sums[taps] = {};
  const std::int64_t y_height = s.rows.output();
  const std::int64_t y_width = s.columns.output();
  for (std::int64_t h = 0; h < y_height; ++h) {
    const std::int64_t from = h * s.rows.stride - s.rows.pad_before() + row * s.rows.dilation;
    if (from < 0 || from >= s.rows.input) continue;
    add_row<taps>(s, first, x + from * s.columns.input * s.block, y_gradient + h * y_width * s.block, y_width, sums);
  }
  for (int k = 0; k < taps; ++k) {
    simd::store(sums[k], result + (row * s.columns.kernel + first + k) * s.channels());
  }
}

/// One plane's gradients of all taps for 16 channels.
template <typename T>
LOCKSTEP_INLINE void sum_tile(const DepthwiseShape& s, const T* x, const T* y_gradient, float* result) {
  for (std::int64_t row = 0; row < s.rows.kernel; ++row) {
    std::int64_t first = 0;
    for (; first + 7 <= s.columns.kernel; first += 7) sum_taps<7>(s, row, first, x, y_gradient, result);
    for (; first + 5 <= s.columns.kernel; first += 5) sum_taps<5>(s, row, first, x, y_gradient, result);
    for (; first + 2 <= s.columns.kernel; first += 2) sum_taps<2>(s, row, first, x, y_gradient, result);
    for (; first < s.columns.kernel; ++first) sum_taps<1>(s, row, first, x, y_gradient, result);
  }
}

/// The last tile ends with the block and computes some channels again, with the same results.
template <typename T>
LOCKSTEP_INLINE void sum_plane(const DepthwiseShape& s, const T* x, const T* y_gradient, float* result) {
  for (std::int64_t next = 0; next < s.block; next += lanes) {
    const std::int64_t channel = std::min(next, s.block - lanes);
    sum_tile(s, x + channel, y_gradient + channel, result + channel);
  }
}

template <typename T>
class DepthwiseWeights final : public Kernel {
 public:
  explicit DepthwiseWeights(const KernelScope& scope)
      : shape_(scope),
        bias_gradient_(scope),
        is_first_(scope.operation.microbatch.index == 0),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        x_(scope.value<T>(scope.operation.input)),
        y_gradient_(scope.gradient<T>(scope.operation.output)),
        weights_(scope.weights_gradient(scope.operation.parameter)),
        of_images_(static_cast<std::size_t>(num_examples_ * count()) * sizeof(float)) {}

  void run(const StepContext& /*context*/) override {
    float* const of_images = of_images_.as<float>().data();
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t plane = 0; plane < num_examples_ * shape_.blocks; ++plane) {
      const T* const x = x_ + plane * shape_.x_plane();
      const T* const y_gradient = y_gradient_ + plane * shape_.y_plane();
      float* const result = of_images + plane / shape_.blocks * count() + plane % shape_.blocks * shape_.block;
      const DepthwiseShape& shape = shape_;
      run_vectorized([=, &shape] { sum_plane(shape, x, y_gradient, result); });
    }
    if (is_first_) std::fill_n(weights_, count(), 0.0F);
    for (std::int64_t i = 0; i < num_examples_; ++i) {
      const float* const of_image = of_images + i * count();
      for (std::int64_t k = 0; k < count(); ++k) weights_[k] += of_image[k];
    }
    bias_gradient_.run();
  }

  [[nodiscard]] std::string implementation() const override { return "depthwise"; }

 private:
  /// Elements of a kernel.
  [[nodiscard]] std::int64_t count() const { return shape_.num_taps() * shape_.channels(); }

  DepthwiseShape shape_;
  BiasGradient bias_gradient_;
  bool is_first_;  ///< of the microbatches
  std::int64_t num_examples_;
  int threads_;
  const T* x_;
  const T* y_gradient_;
  float* weights_;
  AlignedBuffer of_images_;
};

}  // namespace

bool supports_depthwise_weights(const TensorSpec& input, const TensorSpec& output) {
  return input.channels >= lanes && input.type == output.type;
}

std::unique_ptr<Kernel> make_depthwise_weights(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<DepthwiseWeights<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
