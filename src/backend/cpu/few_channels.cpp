// See few_channels.hpp. Both passes keep a tile of results in vector registers: forward a few pixels of 32 or 16 output
// channels, the weight gradient nine taps of the kernel.
#include "backend/cpu/few_channels.hpp"

#include "backend/cpu/activation.hpp"
#include "backend/cpu/convolution_table.hpp"
#include "backend/cpu/simd.hpp"
#include "core/vector_width.hpp"

#include <omp.h>

#include <algorithm>

namespace lockstep {

namespace {

constexpr std::int64_t lanes = simd::lanes;

#if LOCKSTEP_HAS_TARGETS
template <typename Body>
__attribute__((target("avx2,fma"), flatten, noinline)) void run_avx2(const Body& body) {
  body();
}
#endif

/// run_vectorized with fused multiply-add on AVX2 as well.
template <typename Body>
void run_fused(const Body& body) {
#if LOCKSTEP_HAS_TARGETS
  if (vector_width() == VectorWidth::avx2 && __builtin_cpu_supports("fma") != 0) {
    run_avx2(body);
    return;
  }
#endif
  run_vectorized(body);
}

struct ImageShape {
  explicit ImageShape(const KernelScope& scope) {
    const TensorSpec& x = scope.input();
    const TensorSpec& y = scope.output();
    const auto& [rows, columns] = scope.operation.windows;
    height = x.height;
    width = x.width;
    channels = x.channels;
    top = rows.pad_before();
    left = columns.pad_before();
    padded_width = width + columns.pad_total();
    padded_height = height + rows.pad_total();
    y_height = y.height;
    y_width = y.width;
    out = y.channels;
    block = y.block();
    row_stride = rows.stride * padded_width * channels;
    pixel_stride = columns.stride * channels;
    for (std::int64_t i = 0; i < rows.kernel; ++i) {
      for (std::int64_t j = 0; j < columns.kernel; ++j) {
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t row = i * rows.dilation;
          const std::int64_t column = j * columns.dilation;
          taps.push_back((row * padded_width + column) * channels + c);
        }
      }
    }
  }

  [[nodiscard]] std::size_t padded_elements() const {
    return static_cast<std::size_t>(padded_height * padded_width * channels);
  }
  [[nodiscard]] std::int64_t x_elements() const { return height * width * channels; }
  [[nodiscard]] std::int64_t y_elements() const { return y_height * y_width * out; }
  [[nodiscard]] std::int64_t num_taps() const { return static_cast<std::int64_t>(taps.size()); }

  std::int64_t height, width, channels, top, left, padded_height, padded_width;
  std::int64_t y_height, y_width, out, block;
  std::int64_t row_stride, pixel_stride;  ///< in the padded image, from output pixel to output pixel
  std::vector<std::int64_t> taps;         ///< of the kernel: offset in the padded image from the output pixel's origin
};

/// Images widened to float32 with zeros around them, one for each thread.
class PaddedImages {
 public:
  PaddedImages(const ImageShape& shape, int threads)
      : elements_((shape.padded_elements() + lanes - 1) / lanes * lanes),
        memory_(elements_ * static_cast<std::size_t>(threads) * sizeof(float)) {
    std::ranges::fill(memory_.as<float>(), 0.0F);
  }

  template <typename T>
  const float* fill(const ImageShape& s, const T* image) {
    float* const padded = memory_.as<float>().data() + elements_ * static_cast<std::size_t>(omp_get_thread_num());
    const std::int64_t row = s.width * s.channels;
    for (std::int64_t h = 0; h < s.height; ++h) {
      std::copy_n(image + h * row, row, padded + ((h + s.top) * s.padded_width + s.left) * s.channels);
    }
    return padded;
  }

 private:
  std::size_t elements_;
  AlignedBuffer memory_;
};

/// The results of `pixels` neighbouring pixels for `vectors` vectors of output channels.
template <int pixels, int vectors, typename T>
LOCKSTEP_INLINE void compute_tile(const ImageShape& s, const float* x, const float* weights, const float* bias,
                                  bool relu, T* y, std::int64_t y_vector) {
  simd::Floats sums[pixels][vectors];
  for (int v = 0; v < vectors; ++v) {
    simd::Floats start{};
    if (bias != nullptr) simd::load(bias + v * lanes, start);
    for (int p = 0; p < pixels; ++p) sums[p][v] = start;
  }
  const std::int64_t* const taps = s.taps.data();
  const std::int64_t count = s.num_taps();
  for (std::int64_t k = 0; k < count; ++k) {
    simd::Floats weight[vectors];
    for (int v = 0; v < vectors; ++v) simd::load(weights + k * s.out + v * lanes, weight[v]);
    const float* const tap = x + taps[k];
    for (int p = 0; p < pixels; ++p) {
      const float value = tap[p * s.pixel_stride];
      for (int v = 0; v < vectors; ++v) sums[p][v] += weight[v] * value;
    }
  }
  for (int p = 0; p < pixels; ++p) {
    for (int v = 0; v < vectors; ++v) {
      if (relu) sums[p][v] = sums[p][v] < 0.0F ? simd::Floats{} : sums[p][v];  // NaN passes
      simd::store(sums[p][v], y + p * s.block + v * y_vector);
    }
  }
}

template <int vectors, typename T>
LOCKSTEP_INLINE void compute_channels(const ImageShape& s, const float* x, const float* weights, const float* bias,
                                      bool relu, T* y, std::int64_t y_vector) {
  constexpr int pixels = 7;
  for (std::int64_t h = 0; h < s.y_height; ++h) {
    const float* const row = x + h * s.row_stride;
    T* const y_row = y + h * s.y_width * s.block;
    if (s.y_width < pixels) {
      for (std::int64_t w = 0; w < s.y_width; ++w) {
        compute_tile<1, vectors>(s, row + w * s.pixel_stride, weights, bias, relu, y_row + w * s.block, y_vector);
      }
      continue;
    }
    // The last tile ends with the row and computes some pixels again: faster than a tile of fewer pixels.
    for (std::int64_t next = 0; next < s.y_width; next += pixels) {
      const std::int64_t w = std::min(next, s.y_width - pixels);
      compute_tile<pixels, vectors>(s, row + w * s.pixel_stride, weights, bias, relu, y_row + w * s.block, y_vector);
    }
  }
}

template <typename T>
LOCKSTEP_INLINE void compute_image(const ImageShape& s, const float* x, const float* weights, const float* bias,
                                   bool relu, T* y) {
  const std::int64_t y_plane = s.y_height * s.y_width * s.block;  // one block of channels
  const std::int64_t y_vector = s.block == lanes ? y_plane : lanes;
  const auto at = [&](std::int64_t channel) { return channel / s.block * y_plane + channel % s.block; };
  std::int64_t channel = 0;
  for (; channel + 2 * lanes <= s.out; channel += 2 * lanes) {
    const float* const its_bias = bias != nullptr ? bias + channel : nullptr;
    compute_channels<2>(s, x, weights + channel, its_bias, relu, y + at(channel), y_vector);
  }
  if (channel < s.out) {
    const float* const its_bias = bias != nullptr ? bias + channel : nullptr;
    compute_channels<1>(s, x, weights + channel, its_bias, relu, y + at(channel), y_vector);
  }
}

template <typename T>
class FewChannelsForward final : public Kernel {
 public:
  explicit FewChannelsForward(const KernelScope& scope)
      : shape_(scope),
        images_(shape_, scope.threads),
        activation_(scope.operation.activation),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        x_(scope.value<T>(scope.operation.input)),
        y_(scope.value<T>(scope.operation.output)),
        weights_(scope.weights(scope.operation.parameter)),
        bias_(scope.has_bias() ? scope.weights(scope.operation.parameter + 1) : nullptr),
        rounded_(static_cast<std::size_t>(shape_.num_taps() * shape_.out) * sizeof(float)) {}

  void run(const StepContext& /*context*/) override {
    float* const rounded = rounded_.as<float>().data();
    for (std::int64_t i = 0; i < shape_.num_taps() * shape_.out; ++i) rounded[i] = static_cast<T>(weights_[i]);
    const bool relu = activation_ == ActivationFunction::relu;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t i = 0; i < num_examples_; ++i) {
      const float* const image = images_.fill(shape_, x_ + i * shape_.x_elements());
      T* const result = y_ + i * shape_.y_elements();
      run_fused([&] { compute_image(shape_, image, rounded, bias_, relu, result); });
      if (!relu) apply_activation(activation_, result, static_cast<std::size_t>(shape_.y_elements()));
    }
  }

  [[nodiscard]] std::string implementation() const override { return "few_channels"; }

 private:
  ImageShape shape_;
  PaddedImages images_;
  ActivationFunction activation_;
  std::int64_t num_examples_;
  int threads_;
  const T* x_;
  T* y_;
  const float* weights_;
  const float* bias_;
  AlignedBuffer rounded_;
};

/// One image's gradient of `taps` taps of the kernel from tap `first` on, for 32 or 16 output channels, and that of
/// the bias unless `bias` is null.
template <int taps, int vectors, typename T>
LOCKSTEP_INLINE void sum_taps(const ImageShape& s, std::int64_t first, const float* x, const T* gradient,
                              std::int64_t y_vector, float* result, float* bias) {
  simd::Floats sums[taps][vectors] = {};
  simd::Floats bias_sums[vectors] = {};
  std::int64_t offsets[taps];
  for (int k = 0; k < taps; ++k) offsets[k] = s.taps[static_cast<std::size_t>(first + k)];
  for (std::int64_t h = 0; h < s.y_height; ++h) {
    const float* pixel = x + h * s.row_stride;
    const T* y_gradient = gradient + h * s.y_width * s.block;
    for (std::int64_t w = 0; w < s.y_width; ++w, pixel += s.pixel_stride, y_gradient += s.block) {
      simd::Floats dy[vectors];
      for (int v = 0; v < vectors; ++v) {
        simd::load(y_gradient + v * y_vector, dy[v]);
        bias_sums[v] += dy[v];
      }
      for (int k = 0; k < taps; ++k) {
        for (int v = 0; v < vectors; ++v) sums[k][v] += dy[v] * pixel[offsets[k]];
      }
    }
  }
  for (int k = 0; k < taps; ++k) {
    for (int v = 0; v < vectors; ++v) simd::store(sums[k][v], result + (first + k) * s.out + v * lanes);
  }
  if (bias == nullptr) return;
  for (int v = 0; v < vectors; ++v) simd::store(bias_sums[v], bias + v * lanes);
}

template <int vectors, typename T>
LOCKSTEP_INLINE void sum_channels(const ImageShape& s, const float* x, const T* gradient, std::int64_t y_vector,
                                  float* result, float* bias) {
  constexpr int taps = 9;
  const auto next_bias = [&](std::int64_t first) { return first == 0 ? bias : nullptr; };
  std::int64_t k = 0;
  for (; k + taps <= s.num_taps(); k += taps)
    sum_taps<taps, vectors>(s, k, x, gradient, y_vector, result, next_bias(k));
  for (; k + 3 <= s.num_taps(); k += 3) sum_taps<3, vectors>(s, k, x, gradient, y_vector, result, next_bias(k));
  for (; k < s.num_taps(); ++k) sum_taps<1, vectors>(s, k, x, gradient, y_vector, result, next_bias(k));
}

template <typename T>
LOCKSTEP_INLINE void sum_image(const ImageShape& s, const float* x, const T* gradient, float* result, float* bias) {
  const std::int64_t y_plane = s.y_height * s.y_width * s.block;
  const std::int64_t y_vector = s.block == lanes ? y_plane : lanes;
  const auto at = [&](std::int64_t channel) { return channel / s.block * y_plane + channel % s.block; };
  std::int64_t channel = 0;
  for (; channel + 2 * lanes <= s.out; channel += 2 * lanes) {
    sum_channels<2>(s, x, gradient + at(channel), y_vector, result + channel, bias + channel);
  }
  if (channel < s.out) sum_channels<1>(s, x, gradient + at(channel), y_vector, result + channel, bias + channel);
}

template <typename T>
class FewChannelsWeights final : public Kernel {
 public:
  explicit FewChannelsWeights(const KernelScope& scope)
      : shape_(scope),
        images_(shape_, scope.threads),
        is_first_(scope.operation.microbatch.index == 0),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        x_(scope.value<T>(scope.operation.input)),
        y_gradient_(scope.gradient<T>(scope.operation.output)),
        weights_(scope.weights_gradient(scope.operation.parameter)),
        bias_(scope.has_bias() ? scope.weights_gradient(scope.operation.parameter + 1) : nullptr),
        of_images_(static_cast<std::size_t>(num_examples_ * stride()) * sizeof(float)) {}

  void run(const StepContext& /*context*/) override {
    float* const of_images = of_images_.as<float>().data();
    const std::int64_t count = shape_.num_taps() * shape_.out;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t i = 0; i < num_examples_; ++i) {
      const float* const image = images_.fill(shape_, x_ + i * shape_.x_elements());
      float* const result = of_images + i * stride();
      const T* const gradient = y_gradient_ + i * shape_.y_elements();
      run_fused([&] { sum_image(shape_, image, gradient, result, result + count); });
    }
    if (is_first_) std::fill_n(weights_, count, 0.0F);
    if (is_first_ && bias_ != nullptr) std::fill_n(bias_, shape_.out, 0.0F);
    for (std::int64_t i = 0; i < num_examples_; ++i) {
      const float* const of_image = of_images + i * stride();
      for (std::int64_t k = 0; k < count; ++k) weights_[k] += of_image[k];
      if (bias_ == nullptr) continue;
      for (std::int64_t c = 0; c < shape_.out; ++c) bias_[c] += of_image[count + c];
    }
  }

  [[nodiscard]] std::string implementation() const override { return "few_channels"; }

 private:
  /// Floats of one image's gradients: the kernel's, then the bias'.
  [[nodiscard]] std::int64_t stride() const { return (shape_.num_taps() + 1) * shape_.out; }

  ImageShape shape_;
  PaddedImages images_;
  bool is_first_;  ///< of the microbatches
  std::int64_t num_examples_;
  int threads_;
  const T* x_;
  const T* y_gradient_;
  float* weights_;
  float* bias_;
  AlignedBuffer of_images_;
};

}  // namespace

bool supports_few_channels(const TensorSpec& input, const TensorSpec& output) {
  return input.channels > 0 && input.channels <= few_channels && output.channels > 0 && output.channels % lanes == 0 &&
         input.whole_channels == 0 && input.type == output.type;
}

std::unique_ptr<Kernel> make_few_channels_forward(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<FewChannelsForward<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_few_channels_weights(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<FewChannelsWeights<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
