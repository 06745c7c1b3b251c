// Pooling as loops over blocks of channels. oneDNN 3.7 is no faster, and 2.6 is three to five times slower. Backward of
// max pooling and of the relu before it is a single pass.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "backend/cpu/simd.hpp"
#include "core/vector_width.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace lockstep {

namespace {

constexpr std::int64_t tile = simd::lanes;    // channels
constexpr int no_argmax = 255;                // the maximum is not positive, so relu's gradient is zero
constexpr std::int64_t largest_window = 255;  // in pixels: a byte holds the index of a pixel or `no_argmax`

struct PoolingShape {
  explicit PoolingShape(const KernelScope& scope) {
    const TensorSpec& x = scope.input();
    images = static_cast<std::int64_t>(scope.num_examples);
    rows = scope.operation.windows.rows;
    columns = scope.operation.windows.columns;
    block = x.block();
    blocks = x.channels / x.block();
    x_plane = x.height * x.width * block;
    y_height = rows.output();
    y_width = columns.output();
    y_plane = y_height * y_width * block;
  }

  [[nodiscard]] std::int64_t planes() const { return images * blocks; }
  [[nodiscard]] bool overlaps() const { return rows.stride < rows.kernel || columns.stride < columns.kernel; }

  /// Whether all windows are squares of this size, with a stride of the same size and without padding.
  [[nodiscard]] bool fixed(std::int64_t size) const {
    const auto is = [size](const Window& w) { return w.kernel == size && w.stride == size && w.pad_total() == 0; };
    return is(rows) && is(columns);
  }

  /// Whether every pixel is in exactly one window.
  [[nodiscard]] bool covers() const {
    const auto whole = [](const Window& w) { return w.stride == w.kernel && w.output() * w.stride == w.input; };
    return whole(rows) && whole(columns);
  }

  std::int64_t images, blocks, block, x_plane, y_plane, y_height, y_width;
  Window rows, columns;
};

/// The pixels of a window that are inside the image, along one axis. `index` numbers the windows.
struct Extent {
  Extent(const Window& window, std::int64_t index)
      : origin(index * window.stride - window.pad_before()),
        begin(std::max<std::int64_t>(origin, 0)),
        end(std::min(origin + window.kernel, window.input)) {}
  std::int64_t origin, begin, end;
};

/// A window without padding whose size is a compile-time constant and equals its stride: the common case. `Extent` has
/// the same interface for any other window.
template <int size>
struct FixedExtent {
  FixedExtent(const Window& /*window*/, std::int64_t index) : origin(index * size), begin(origin), end(origin + size) {}
  std::int64_t origin, begin, end;
};

/// The maximum of one window, for 16 channels.
template <typename T, typename ExtentOf>
LOCKSTEP_INLINE void max_of_window(const PoolingShape& s, const T* x, const ExtentOf& h, const ExtentOf& w, bool relu,
                                   T* y, std::uint8_t* argmax) {
  simd::Floats best;
  simd::load(x + (h.begin * s.columns.input + w.begin) * s.block, best);
  simd::Ints who =
      simd::Ints{} + static_cast<std::int32_t>((h.begin - h.origin) * s.columns.kernel + w.begin - w.origin);
  for (std::int64_t i = h.begin; i < h.end; ++i) {
    for (std::int64_t j = w.begin; j < w.end; ++j) {
      const auto number = static_cast<std::int32_t>((i - h.origin) * s.columns.kernel + (j - w.origin));
      simd::Floats value;
      simd::load(x + (i * s.columns.input + j) * s.block, value);
      const simd::Ints larger = value > best;
      best = larger ? value : best;
      who = larger ? simd::Ints{} + number : who;
    }
  }
  simd::store_exact(best, y);
  if (relu) who = (best > 0.0F) ? who : simd::Ints{} + no_argmax;
  simd::store(who, argmax);
}

/// The maximum of one window, for one channel beyond the last multiple of 16. Uses masks, as backward does: branches on
/// which pixel wins are unpredictable and four times slower.
template <typename T, typename ExtentOf>
LOCKSTEP_INLINE void max_of_channel(const PoolingShape& s, const T* x, const ExtentOf& h, const ExtentOf& w, bool relu,
                                    T& y, std::uint8_t& argmax) {
  float best = x[(h.begin * s.columns.input + w.begin) * s.block];
  std::int64_t who = (h.begin - h.origin) * s.columns.kernel + w.begin - w.origin;
  for (std::int64_t i = h.begin; i < h.end; ++i) {
    for (std::int64_t j = w.begin; j < w.end; ++j) {
      const float value = x[(i * s.columns.input + j) * s.block];
      const std::int64_t number = (i - h.origin) * s.columns.kernel + (j - w.origin);
      const auto larger = -static_cast<std::int64_t>(value > best);
      best = value > best ? value : best;
      who ^= (who ^ number) & larger;
    }
  }
  y = best;
  argmax = relu && !(best > 0.0F) ? no_argmax : static_cast<std::uint8_t>(who);
}

template <typename ExtentOf, typename T>
LOCKSTEP_INLINE void max_plane_body(const PoolingShape& s, const T* x, bool relu, T* y, std::uint8_t* argmax) {
  for (std::int64_t oh = 0; oh < s.y_height; ++oh) {
    const ExtentOf h(s.rows, oh);
    for (std::int64_t ow = 0; ow < s.y_width; ++ow) {
      const ExtentOf w(s.columns, ow);
      const std::int64_t at = (oh * s.y_width + ow) * s.block;
      std::int64_t c = 0;
      for (; c + tile <= s.block; c += tile) max_of_window(s, x + c, h, w, relu, y + at + c, argmax + at + c);
      for (; c < s.block; ++c) max_of_channel(s, x + c, h, w, relu, y[at + c], argmax[at + c]);
    }
  }
}

/// Adds each output's gradient to the pixel that was the maximum.
template <typename ExtentOf, bool overlap, typename T>
LOCKSTEP_INLINE void scatter_plane_body(const PoolingShape& s, const T* y_gradient, const std::uint8_t* argmax,
                                        T* x_gradient) {
  if (overlap || !s.covers()) {
    std::memset(static_cast<void*>(x_gradient), 0, static_cast<std::size_t>(s.x_plane) * sizeof(T));
  }
  for (std::int64_t oh = 0; oh < s.y_height; ++oh) {
    const ExtentOf h(s.rows, oh);
    for (std::int64_t ow = 0; ow < s.y_width; ++ow) {
      const ExtentOf w(s.columns, ow);
      const std::int64_t at = (oh * s.y_width + ow) * s.block;
      std::int64_t c = 0;
      for (; c + tile <= s.block; c += tile) {
        simd::Floats gradient;
        simd::Ints who;
        simd::load(y_gradient + at + c, gradient);
        simd::load(argmax + at + c, who);
        for (std::int64_t i = h.begin; i < h.end; ++i) {
          for (std::int64_t j = w.begin; j < w.end; ++j) {
            T* pixel = x_gradient + (i * s.columns.input + j) * s.block + c;
            const auto number = static_cast<std::int32_t>((i - h.origin) * s.columns.kernel + (j - w.origin));
            simd::Floats passed = (who == number) ? gradient : simd::Floats{};
            if constexpr (overlap) {
              simd::Floats before;
              simd::load(pixel, before);
              passed += before;
              simd::store(passed, pixel);
            } else {
              simd::store_exact(passed, pixel);
            }
          }
        }
      }
      for (; c < s.block; ++c) {
        for (std::int64_t i = h.begin; i < h.end; ++i) {
          for (std::int64_t j = w.begin; j < w.end; ++j) {
            T& pixel = x_gradient[(i * s.columns.input + j) * s.block + c];
            const auto number = (i - h.origin) * s.columns.kernel + (j - w.origin);
            const auto won = -static_cast<std::uint32_t>(argmax[at + c] == number);
            const auto gradient = static_cast<float>(y_gradient[at + c]);
            const auto passed = std::bit_cast<float>(std::bit_cast<std::uint32_t>(gradient) & won);
            pixel = overlap ? static_cast<float>(pixel) + passed : passed;
          }
        }
      }
    }
  }
}

template <typename T>
LOCKSTEP_INLINE void choose_max(const PoolingShape& s, const T* x, bool relu, T* y, std::uint8_t* argmax) {
  if (s.fixed(2)) {
    max_plane_body<FixedExtent<2>>(s, x, relu, y, argmax);
  } else {
    max_plane_body<Extent>(s, x, relu, y, argmax);
  }
}

template <typename T>
LOCKSTEP_INLINE void choose_scatter(const PoolingShape& s, const T* y_gradient, const std::uint8_t* argmax,
                                    T* x_gradient) {
  if (s.fixed(2)) {
    scatter_plane_body<FixedExtent<2>, false>(s, y_gradient, argmax, x_gradient);
  } else if (s.overlaps()) {
    scatter_plane_body<Extent, true>(s, y_gradient, argmax, x_gradient);
  } else {
    scatter_plane_body<Extent, false>(s, y_gradient, argmax, x_gradient);
  }
}

/// Both directions of a pooling, plane by plane.
template <typename T>
class Pooling : public Kernel {
 public:
  void run(const StepContext& /*context*/) final {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t p = 0; p < shape_.planes(); ++p) {
      if (backward_) {
        backward(p);
      } else {
        forward(p);
      }
    }
    if (backward_ && derived_ != ActivationFunction::linear) apply_derivatives();
  }

 protected:
  /// `derives_relu`: backward() includes the derivative of a relu before the pooling.
  Pooling(const KernelScope& scope, bool derives_relu)
      : shape_(scope),
        relu_(scope.operation.input_activation == ActivationFunction::relu),
        x_(scope.value<T>(scope.operation.input)),
        y_(scope.value<T>(scope.operation.output)),
        x_gradient_(scope.gradient<T>(scope.operation.input)),
        y_gradient_(scope.gradient<T>(scope.operation.output)),
        backward_(is_backward(scope.operation)),
        derived_(derives_relu && relu_ ? ActivationFunction::linear : scope.operation.input_activation),
        threads_(scope.threads) {}

  virtual void forward(std::int64_t plane) const = 0;
  virtual void backward(std::int64_t plane) const = 0;

  [[nodiscard]] const PoolingShape& shape() const noexcept { return shape_; }
  [[nodiscard]] bool relu() const noexcept { return relu_; }
  [[nodiscard]] const T* x(std::int64_t plane) const { return x_ + plane * shape_.x_plane; }
  [[nodiscard]] T* y(std::int64_t plane) const { return y_ + plane * shape_.y_plane; }
  [[nodiscard]] T* x_gradient(std::int64_t plane) const { return x_gradient_ + plane * shape_.x_plane; }
  [[nodiscard]] const T* y_gradient(std::int64_t plane) const { return y_gradient_ + plane * shape_.y_plane; }

 private:
  void apply_derivatives() const {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t p = 0; p < shape_.planes(); ++p) {
      apply_derivative(derived_, x(p), x_gradient(p), static_cast<std::size_t>(shape_.x_plane));
    }
  }

  PoolingShape shape_;
  bool relu_;  ///< before the pooling
  const T* x_;
  T* y_;
  T* x_gradient_;
  const T* y_gradient_;
  bool backward_;
  ActivationFunction derived_;  ///< whose derivative follows backward()
  int threads_;
};

/// Forward saves the index of the largest pixel of each window; backward passes the gradient to that pixel.
template <typename T>
class MaxPooling final : public Pooling<T> {
 public:
  explicit MaxPooling(const KernelScope& scope)
      : Pooling<T>(scope, true), argmaxes_(scope.saved_for_backward(scope.operation.output)) {
    if (this->shape().rows.kernel * this->shape().columns.kernel > largest_window) {
      throw UsageError(fmt::format("layer '{}' has a pooling window of more than {} pixels; use a smaller pool_size",
                                   scope.layer().name, largest_window));
    }
  }

 private:
  void forward(std::int64_t plane) const override {
    run_vectorized([&] { choose_max(this->shape(), this->x(plane), this->relu(), this->y(plane), argmaxes(plane)); });
  }
  void backward(std::int64_t plane) const override {
    run_vectorized(
        [&] { choose_scatter(this->shape(), this->y_gradient(plane), argmaxes(plane), this->x_gradient(plane)); });
  }

  [[nodiscard]] std::uint8_t* argmaxes(std::int64_t plane) const { return argmaxes_ + plane * this->shape().y_plane; }

  std::uint8_t* argmaxes_;
};

template <typename T>
class AveragePooling final : public Pooling<T> {
 public:
  explicit AveragePooling(const KernelScope& scope) : Pooling<T>(scope, false) {}

 private:
  template <typename Visit>
  void windows(Visit visit) const {
    const PoolingShape& s = this->shape();
    for (std::int64_t oh = 0; oh < s.y_height; ++oh) {
      for (std::int64_t ow = 0; ow < s.y_width; ++ow) {
        visit(Extent(s.rows, oh), Extent(s.columns, ow), (oh * s.y_width + ow) * s.block);
      }
    }
  }

  void forward(std::int64_t plane) const override {
    const PoolingShape& s = this->shape();
    const T* x = this->x(plane);
    T* y = this->y(plane);
    windows([&](const Extent& h, const Extent& w, std::int64_t at) {
      const float scale = 1.0F / static_cast<float>((h.end - h.begin) * (w.end - w.begin));
      for (std::int64_t c = 0; c < s.block; ++c) {
        float sum = 0;
        for (std::int64_t i = h.begin; i < h.end; ++i) {
          for (std::int64_t j = w.begin; j < w.end; ++j) sum += x[(i * s.columns.input + j) * s.block + c];
        }
        y[at + c] = sum * scale;
      }
    });
  }

  void backward(std::int64_t plane) const override {
    const PoolingShape& s = this->shape();
    const T* y_gradient = this->y_gradient(plane);
    T* x_gradient = this->x_gradient(plane);
    std::memset(static_cast<void*>(x_gradient), 0, static_cast<std::size_t>(s.x_plane) * sizeof(T));
    windows([&](const Extent& h, const Extent& w, std::int64_t at) {
      const float scale = 1.0F / static_cast<float>((h.end - h.begin) * (w.end - w.begin));
      for (std::int64_t i = h.begin; i < h.end; ++i) {
        for (std::int64_t j = w.begin; j < w.end; ++j) {
          T* pixel = x_gradient + (i * s.columns.input + j) * s.block;
          for (std::int64_t c = 0; c < s.block; ++c) {
            pixel[c] = static_cast<float>(pixel[c]) + static_cast<float>(y_gradient[at + c]) * scale;
          }
        }
      }
    });
  }
};

}  // namespace

std::unique_ptr<Kernel> make_max_pooling(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<MaxPooling<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_average_pooling(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<AveragePooling<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
