// The loops of BatchNormalization over a tile of channels: statistics, normalizing, and both passes of backward. Each
// reads its tensors once, in runs that stay in the cache.
#pragma once

#include "backend/cpu/activation.hpp"
#include "backend/cpu/simd.hpp"
#include "core/vector_width.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace lockstep::batch_normalization {

inline constexpr std::int64_t narrow_tile = simd::lanes;
inline constexpr std::int64_t wide_tile = 4 * narrow_tile;  // channels; neighbours in memory are read together
inline constexpr std::int64_t pixels_of_run = 256;          // a run of a tile stays in the cache

using simd::Floats;
using TileSums = std::array<double, wide_tile>;
using TileFloats = std::array<float, wide_tile>;

/// The position and extent of a tile of channels in a tensor: `rows` times `pixels` vectors of `width` floats.
struct TileView {
  std::int64_t width;   ///< channels in this tile
  std::int64_t pixels;  ///< of a row
  std::int64_t stride;  ///< elements from pixel to pixel
  std::int64_t rows;
  std::int64_t row_stride;  ///< elements from row to row
  std::int64_t first;       ///< offset of the first pixel

  /// Of a contiguous tile, a run of pixels is an array.
  [[nodiscard]] bool is_contiguous() const { return stride == width; }
  [[nodiscard]] double count() const { return static_cast<double>(rows) * static_cast<double>(pixels); }

  /// Calls visit(offset, pixels) for one run of a row after the other.
  template <typename Visit>
  LOCKSTEP_INLINE void for_each_run(const Visit& visit) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t p = 0; p < pixels; p += pixels_of_run) {
        visit(first + row * row_stride + p * stride, std::min(pixels_of_run, pixels - p));
      }
    }
  }
};

/// The values of a tile's channels: `vectors` vectors, or one of which only `width` lanes are used.
template <int vectors>
struct Lanes {
  Floats of[vectors] = {};

  template <typename T>
  LOCKSTEP_INLINE void load(const T* from, std::int64_t width) {
    if (vectors > 1 || width == narrow_tile) {
      for (int k = 0; k < vectors; ++k) simd::load(from + k * narrow_tile, of[k]);
    } else {
      for (std::int64_t c = 0; c < width; ++c) of[0][c] = static_cast<float>(from[c]);
    }
  }
  LOCKSTEP_INLINE void load(const TileFloats& from) {
    for (int k = 0; k < vectors; ++k) simd::load(from.data() + k * narrow_tile, of[k]);
  }
  template <typename T>
  LOCKSTEP_INLINE void store(T* to, std::int64_t width, bool streams) const {
    if constexpr (std::is_same_v<T, float>) {
      if (streams) {
        for (int k = 0; k < vectors; ++k) simd::stream(of[k], to + k * narrow_tile);
        return;
      }
    }
    if (vectors > 1 || width == narrow_tile) {
      for (int k = 0; k < vectors; ++k) simd::store(of[k], to + k * narrow_tile);
    } else {
      for (std::int64_t c = 0; c < width; ++c) to[c] = of[0][c];
    }
  }
  [[nodiscard]] LOCKSTEP_INLINE float operator[](std::int64_t c) const { return of[c / narrow_tile][c % narrow_tile]; }
};

/// Runs body.template operator()<vectors>(width), vectorized, with the width as a constant where it is a usual one.
template <typename Body>
LOCKSTEP_INLINE void run_of_width(std::int64_t width, const Body& body) {
  run_vectorized([=] {
    if (width == wide_tile) return body.template operator()<4>(wide_tile);
    if (width == narrow_tile) return body.template operator()<1>(narrow_tile);
    body.template operator()<1>(width);
  });
}

template <int vectors>
LOCKSTEP_INLINE void add(const Lanes<vectors>& more, TileSums& sums) {
  for (std::int64_t c = 0; c < vectors * narrow_tile; ++c) sums[c] += more[c];
}

/// The mean and the sum of the squares of the deviations from it, per channel. Each run has its own mean, in float; the
/// runs are merged in double (Chan, Golub and LeVeque, 1983), so the values are read from memory only once.
struct Moments {
  double count = 0;
  TileSums mean = {};
  TileSums squares = {};

  template <int vectors>
  LOCKSTEP_INLINE void merge(std::int64_t more, const Lanes<vectors>& run_mean, const Lanes<vectors>& run_squares) {
    const auto n = static_cast<double>(more);
    const double share = n / (count + n);
    for (std::int64_t c = 0; c < vectors * narrow_tile; ++c) {
      const double distance = run_mean[c] - mean[c];
      mean[c] += distance * share;
      squares[c] += run_squares[c] + distance * distance * count * share;
    }
    count += n;
  }
};

template <int vectors, typename T>
LOCKSTEP_INLINE void add_moments(const TileView& view, std::int64_t width, const T* x, Moments& moments) {
  view.for_each_run([&](std::int64_t at, std::int64_t pixels) {
    const T* const run = x + at;
    Lanes<vectors> mean;
    for (std::int64_t p = 0; p < pixels; ++p) {
      Lanes<vectors> value;
      value.load(run + p * view.stride, width);
      for (int k = 0; k < vectors; ++k) mean.of[k] += value.of[k];
    }
    for (int k = 0; k < vectors; ++k) mean.of[k] /= static_cast<float>(pixels);
    Lanes<vectors> squares;
    for (std::int64_t p = 0; p < pixels; ++p) {
      Lanes<vectors> value;
      value.load(run + p * view.stride, width);
      for (int k = 0; k < vectors; ++k) {
        const Floats deviation = value.of[k] - mean.of[k];
        squares.of[k] += deviation * deviation;
      }
    }
    moments.merge(pixels, mean, squares);
  });
}

template <typename T>
void moments_of(const TileView& view, const T* x, Moments& moments) {
  Moments* const to = &moments;
  const TileView* const of = &view;
  run_of_width(view.width, [=]<int vectors>(std::int64_t width) { add_moments<vectors>(*of, width, x, *to); });
}

/// A relu or a relu6 that is applied in the same pass.
struct Clip {
  bool is_wanted = false;
  float largest = 0;  ///< infinity for relu

  [[nodiscard]] static Clip of(ActivationFunction function) {
    if (function == ActivationFunction::relu) return {true, std::numeric_limits<float>::infinity()};
    if (function == activations::relu6) return {true, 6.0F};
    return {};
  }
};

/// What normalizing takes, per channel of a tile.
struct Normalization {
  TileFloats mean = {};
  TileFloats scale = {};
  TileFloats shift = {};
  Clip clip = {};
};

/// A Normalization, loaded.
template <int vectors>
struct Normalizer {
  Lanes<vectors> mean;
  Lanes<vectors> scale;
  Lanes<vectors> shift;
  bool clips;
  Floats largest;

  LOCKSTEP_INLINE explicit Normalizer(const Normalization& by) : clips(by.clip.is_wanted) {
    mean.load(by.mean);
    scale.load(by.scale);
    shift.load(by.shift);
    largest = Floats{} + by.clip.largest;
  }

  /// Makes x the output before the activation.
  LOCKSTEP_INLINE void normalize(int k, Floats& x) const { x = (x - mean.of[k]) * scale.of[k] + shift.of[k]; }

  LOCKSTEP_INLINE void clip(Floats& value) const {
    if (!clips) return;
    value = value < 0.0F ? Floats{} : value;
    value = value > largest ? largest : value;
  }
};

/// Rounds as forward did when it stored the value.
template <typename T>
LOCKSTEP_INLINE void round_to(Floats& value) {
  if constexpr (!std::is_same_v<T, float>) {
    T stored[simd::lanes];
    simd::store(value, stored);
    simd::load(stored, value);
  }
}

/// Multiplies gradients by the derivative of the activation that made `output`.
LOCKSTEP_INLINE void derive(const Floats& output, const Floats& largest, Floats& gradient) {
  const Floats below = largest - output;
  const Floats inside = output < below ? output : below;  // the minimum: GCC 12 vectorizes only one selection
  gradient = inside > 0.0F ? gradient : Floats{};
}

template <int vectors, typename T>
LOCKSTEP_INLINE void normalize_run(const Normalization& by, std::int64_t width, std::int64_t stride,
                                   std::int64_t pixels, const T* x, T* y, bool streams) {
  const Normalizer<vectors> to(by);
  for (std::int64_t p = 0; p < pixels; ++p) {
    Lanes<vectors> values;
    values.load(x + p * stride, width);
    for (int k = 0; k < vectors; ++k) {
      to.normalize(k, values.of[k]);
      to.clip(values.of[k]);
    }
    values.store(y + p * stride, width, streams);
  }
}

/// Sums of the gradient, and of the gradient times the deviation from the mean.
template <int vectors, typename T>
LOCKSTEP_INLINE void add_gradients(const TileView& view, std::int64_t width, const Normalization& forward, const T* x,
                                   const T* y_gradient, TileSums& sums, TileSums& projected) {
  const Normalizer<vectors> normalizer(forward);
  view.for_each_run([&](std::int64_t at, std::int64_t pixels) {
    Lanes<vectors> sum;
    Lanes<vectors> projected_sum;
    for (std::int64_t p = 0; p < pixels; ++p) {
      Lanes<vectors> value;
      Lanes<vectors> gradient;
      value.load(x + at + p * view.stride, width);
      gradient.load(y_gradient + at + p * view.stride, width);
      for (int k = 0; k < vectors; ++k) {
        if (normalizer.clips) {
          Floats output = value.of[k];
          normalizer.normalize(k, output);
          round_to<T>(output);
          derive(output, normalizer.largest, gradient.of[k]);
        }
        sum.of[k] += gradient.of[k];
        projected_sum.of[k] += gradient.of[k] * (value.of[k] - normalizer.mean.of[k]);
      }
    }
    add(sum, sums);
    add(projected_sum, projected);
  });
}

template <typename T>
void sum_gradients(const TileView& view, const Normalization& forward, const T* x, const T* y_gradient, TileSums& sums,
                   TileSums& projected) {
  const TileView* const of = &view;
  const Normalization* const from = &forward;
  TileSums* const to = &sums;
  TileSums* const projected_to = &projected;
  run_of_width(view.width, [=]<int vectors>(std::int64_t width) {
    add_gradients<vectors>(*of, width, *from, x, y_gradient, *to, *projected_to);
  });
}

/// The terms of the gradient of x, per channel of a tile: dx = (dy - gradient_mean - (x - mean) slope) scale.
struct Propagation {
  Normalization forward = {};  ///< its clip: the activation of y, whose derivative is applied to dy
  TileFloats gradient_mean = {};
  TileFloats slope = {};
  Clip clip = {};  ///< the activation that made x, whose derivative is applied to dx
};

template <int vectors, typename T>
LOCKSTEP_INLINE void propagate_run(const Propagation& by, std::int64_t width, std::int64_t stride, std::int64_t pixels,
                                   const T* x, const T* y_gradient, T* x_gradient, bool streams) {
  const Normalizer<vectors> normalizer(by.forward);
  Lanes<vectors> gradient_mean;
  Lanes<vectors> slope;
  gradient_mean.load(by.gradient_mean);
  slope.load(by.slope);
  const Clip clip = by.clip;
  const Floats largest = Floats{} + clip.largest;
  for (std::int64_t p = 0; p < pixels; ++p) {
    Lanes<vectors> values;
    Lanes<vectors> gradients;
    values.load(x + p * stride, width);
    gradients.load(y_gradient + p * stride, width);
    for (int k = 0; k < vectors; ++k) {
      const Floats& value = values.of[k];
      Floats& gradient = gradients.of[k];
      if (normalizer.clips) {
        Floats output = value;
        normalizer.normalize(k, output);
        round_to<T>(output);
        derive(output, normalizer.largest, gradient);
      }
      gradient =
          (gradient - gradient_mean.of[k] - (value - normalizer.mean.of[k]) * slope.of[k]) * normalizer.scale.of[k];
      if (clip.is_wanted) {
        derive(value, largest, gradient);
      }
    }
    gradients.store(x_gradient + p * stride, width, streams);
  }
}

}  // namespace lockstep::batch_normalization
