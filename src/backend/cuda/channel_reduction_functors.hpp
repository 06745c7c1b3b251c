// Functors for per-channel sums over all pixels of a batch: bias gradients and BatchNormalization. A sum has two stages
// with a fixed order, so every run gives the same bits: channel_reduction.cuh adds `Terms` within segments of pixels,
// then the segments of each channel, whose sum it passes to a finishing functor.
#pragma once

#include "backend/cuda/elementwise_functors.hpp"

#include <cmath>
#include <cstddef>

namespace lockstep::cuda {

/// Two values that are summed together over a channel.
struct Pair {
  double first = 0;
  double second = 0;
};

template <typename T>
struct ValueTerms {
  const T* values;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Pair operator()(std::size_t at, Index /*channel*/) const {
    return {static_cast<float>(values[at]), 0.0};
  }
};

template <typename T>
struct MomentTerms {
  const T* x;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Pair operator()(std::size_t at, Index /*channel*/) const {
    const double value = static_cast<float>(x[at]);
    return {value, value * value};
  }
};

/// A replica's statistics, which forward saves for backward; one value per channel.
struct Statistics {
  float* mean;
  float* inverse;  ///< 1 / sqrt(variance + epsilon)
};

/// The gradient, and its product with the normalized input.
template <typename T>
struct ProjectionTerms {
  const T* x;
  const T* y_gradient;
  Statistics statistics;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Pair operator()(std::size_t at, Index channel) const {
    const float gradient = y_gradient[at];
    const float normal = (static_cast<float>(x[at]) - statistics.mean[channel]) * statistics.inverse[channel];
    return {gradient, static_cast<double>(gradient) * normal};
  }
};

struct FinishBiasGradient {
  float* gradient;
  LOCKSTEP_HOST_DEVICE void operator()(Index channel, const Pair& sum) const {
    gradient[channel] = static_cast<float>(sum.first);
  }
};

struct FinishMoments {
  double count;  ///< values per channel
  float epsilon;
  Statistics statistics;
  const StepArguments* arguments;
  float* moving_mean;  ///< in the gradient arena: this batch's mean and variance, from which moving ones are updated
  float* moving_variance;
  bool first_replica;

  LOCKSTEP_HOST_DEVICE void operator()(Index channel, const Pair& sum) const {
    const double mean = sum.first / count;
    const double spread = sum.second / count - mean * mean;
    const float variance = spread > 0 ? static_cast<float>(spread) : 0.0F;
    statistics.mean[channel] = static_cast<float>(mean);
    statistics.inverse[channel] = 1.0F / std::sqrt(variance + epsilon);
    const float replica_weight = arguments->replica_weight;
    moving_mean[channel] = (first_replica ? 0.0F : moving_mean[channel]) + statistics.mean[channel] * replica_weight;
    moving_variance[channel] = (first_replica ? 0.0F : moving_variance[channel]) + variance * replica_weight;
  }
};

template <typename T>
struct Normalize {
  const T* x;
  T* y;
  const float* mean;
  const float* inverse;   ///< null: computed from `variance`
  const float* variance;  ///< the moving variance
  const float* gamma;     ///< may be null
  const float* beta;      ///< may be null
  float epsilon;
  Index channels;
  ActivationFunction function;

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const Index c = i % channels;
    const float one_by_deviation = inverse != nullptr ? inverse[c] : 1.0F / std::sqrt(variance[c] + epsilon);
    const float scale = one_by_deviation * (gamma != nullptr ? gamma[c] : 1.0F);
    y[i] = activate(function, (static_cast<float>(x[i]) - mean[c]) * scale + (beta != nullptr ? beta[c] : 0.0F));
  }
};

/// The gradients of gamma and beta, and the means that the input's gradient needs.
struct FinishProjection {
  double count;
  float* gamma_gradient;  ///< may be null
  float* beta_gradient;   ///< may be null
  float* gradient_mean;
  float* projected_mean;
  bool first_replica;

  LOCKSTEP_HOST_DEVICE void operator()(Index channel, const Pair& sum) const {
    if (gamma_gradient != nullptr) {
      gamma_gradient[channel] = (first_replica ? 0.0F : gamma_gradient[channel]) + static_cast<float>(sum.second);
    }
    if (beta_gradient != nullptr) {
      beta_gradient[channel] = (first_replica ? 0.0F : beta_gradient[channel]) + static_cast<float>(sum.first);
    }
    gradient_mean[channel] = static_cast<float>(sum.first / count);
    projected_mean[channel] = static_cast<float>(sum.second / count);
  }
};

/// dx = gamma / sigma (dy - mean(dy) - xhat mean(dy xhat)), means over the replica (Ioffe and Szegedy, 2015).
template <typename T>
struct BatchNormalizationInputGradient {
  const T* x;
  const T* y_gradient;
  T* x_gradient;
  Statistics statistics;
  const float* gamma;  ///< may be null
  const float* gradient_mean;
  const float* projected_mean;
  Index channels;
  ActivationFunction function;  ///< the activation that produced x

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const Index c = i % channels;
    const float inverse = statistics.inverse[c];
    const float normal = (static_cast<float>(x[i]) - statistics.mean[c]) * inverse;
    const float scale = inverse * (gamma != nullptr ? gamma[c] : 1.0F);
    const float gradient = (static_cast<float>(y_gradient[i]) - gradient_mean[c] - normal * projected_mean[c]) * scale;
    x_gradient[i] = activation_gradient(function, x[i], gradient);
  }
};

/// The gradient of x where the moving statistics normalized it.
template <typename T>
struct FrozenNormalizationInputGradient {
  const T* x;
  const T* y_gradient;
  T* x_gradient;
  const float* variance;  ///< the moving variance
  const float* gamma;     ///< may be null
  float epsilon;
  Index channels;
  ActivationFunction function;  ///< the activation that produced x

  LOCKSTEP_HOST_DEVICE void operator()(Index i) const {
    const Index c = i % channels;
    const float scale = 1.0F / std::sqrt(variance[c] + epsilon) * (gamma != nullptr ? gamma[c] : 1.0F);
    x_gradient[i] = activation_gradient(function, x[i], static_cast<float>(y_gradient[i]) * scale);
  }
};

}  // namespace lockstep::cuda
