// BatchNormalization with separate statistics for each replica. It uses plain loops, because a rank may compute several
// replicas of unequal size. The statistics are all-reduced together with the gradients.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {

namespace {

constexpr std::int64_t tile = 16;  // channels

using TileSums = std::array<double, tile>;

/// The strides of a tile of channels in a tensor.
struct TileView {
  std::int64_t width;           ///< channels in this tile
  std::int64_t pixels;          ///< of one example
  std::int64_t block;           ///< elements from pixel to pixel
  std::int64_t example_stride;  ///< elements from example to example
};

/// Sums first(x, y) and second(x, y) over the examples [begin, end), separately for each channel: in float within an
/// example, in double across examples.
template <typename T, typename First, typename Second>
inline __attribute__((always_inline)) void sum_tile(const TileView& view, const T* a, const T* b, std::size_t begin,
                                                    std::size_t end, TileSums& first_sums, TileSums& second_sums,
                                                    First first, Second second) {
  first_sums.fill(0);
  second_sums.fill(0);
  for (std::size_t r = begin; r < end; ++r) {
    float first_sum[tile] = {};
    float second_sum[tile] = {};
    const T* example_a = a + static_cast<std::int64_t>(r) * view.example_stride;
    const T* example_b = b + static_cast<std::int64_t>(r) * view.example_stride;
    for (std::int64_t p = 0; p < view.pixels; ++p) {
      for (std::int64_t c = 0; c < view.width; ++c) {
        const float x = example_a[p * view.block + c];
        const float y = example_b[p * view.block + c];
        first_sum[c] += first(x, y, c);
        second_sum[c] += second(x, y, c);
      }
    }
    for (std::int64_t c = 0; c < view.width; ++c) {
      first_sums[c] += first_sum[c];
      second_sums[c] += second_sum[c];
    }
  }
}

template <typename T>
class BatchNormalizationKernel final : public Kernel {
 public:
  /// `recomputes`: has the examples of a kernel that reads the output in backward.
  explicit BatchNormalizationKernel(const KernelScope& scope, bool recomputes = false)
      : backward_(scope.operation.kind == OperationKind::batch_normalization_backward),
        recomputes_(recomputes),
        frozen_(scope.operation.is_frozen),
        activation_(scope.operation.activation),
        input_activation_(scope.operation.input_activation),
        input_gradient_(scope.operation.input_gradient),
        tensor_(scope.input()),
        epsilon_(static_cast<float>(std::get<BatchNormalization>(scope.layer().layer).epsilon)),
        threads_(scope.threads),
        first_example_(scope.first_example),
        num_examples_(scope.num_examples),
        x_(scope.value<T>(scope.operation.input)),
        y_(scope.value<T>(scope.operation.output)),
        x_gradient_(scope.gradient<T>(scope.operation.input)),
        y_gradient_(scope.gradient<T>(scope.operation.output)),
        statistics_(reinterpret_cast<float*>(scope.buffers[scope.operation.output].saved_for_backward)) {
    const auto& layer = std::get<BatchNormalization>(scope.layer().layer);
    int parameter = scope.operation.parameter;
    if (layer.scale) bind(scope, parameter++, gamma_);
    if (layer.center) bind(scope, parameter++, beta_);
    bind(scope, parameter++, moving_mean_);
    bind(scope, parameter, moving_variance_);
  }

  void run(const StepContext& context) override {
    const std::int64_t tiles_a_block = (tensor_.block() + tile - 1) / tile;
    const std::int64_t tiles = tensor_.channels / tensor_.block() * tiles_a_block;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t block = t / tiles_a_block;
      const std::int64_t within = t % tiles_a_block * tile;
      const TileView view{std::min(tile, tensor_.block() - within), tensor_.height * tensor_.width, tensor_.block(),
                          tensor_.elements()};
      const std::int64_t first = block * view.pixels * tensor_.block() + within;
      const std::int64_t channel = block * tensor_.block() + within;
      if (backward_ && frozen_) {
        run_frozen_backward(view, first, channel);
      } else if (backward_) {
        run_backward(context, view, first, channel);
      } else if (recomputes_ && !frozen_) {
        normalize_again(context, view, first, channel);
      } else if (context.training && !frozen_) {
        run_training(context, view, first, channel);
      } else {
        run_inference(view, first, channel);
      }
    }
  }

 private:
  struct Vector {
    const float* value = nullptr;
    float* gradient = nullptr;
  };

  static void bind(const KernelScope& scope, int parameter, Vector& vector) {
    vector = {scope.weights(parameter), scope.operation.is_frozen ? nullptr : scope.weights_gradient(parameter)};
  }

  /// The replica's examples, relative to this kernel's first one. Empty if this kernel computes none of them.
  [[nodiscard]] Range examples_of(const StepContext& context, std::size_t replica) const {
    const auto [begin, end] = context.replicas[replica];
    const auto here = [this](std::size_t example) {
      return std::clamp(example, first_example_, first_example_ + num_examples_) - first_example_;
    };
    return {here(begin), here(end)};
  }

  /// A replica's mean and 1 / sqrt(variance + epsilon), which forward saves for backward: 2 * channels floats.
  [[nodiscard]] float* statistics_of(std::size_t replica) const {
    return statistics_ + static_cast<std::int64_t>(replica) * 2 * tensor_.channels;
  }

  void normalize(const TileView& view, std::int64_t first, std::int64_t channel, std::size_t begin, std::size_t end,
                 const float* mean, const float* inverse) const {
    float scale[tile];
    float shift[tile];
    for (std::int64_t c = 0; c < view.width; ++c) {
      scale[c] = inverse[c] * (gamma_.value != nullptr ? gamma_.value[channel + c] : 1.0F);
      shift[c] = beta_.value != nullptr ? beta_.value[channel + c] : 0.0F;
    }
    for (std::size_t r = begin; r < end; ++r) {
      const std::int64_t example = static_cast<std::int64_t>(r) * view.example_stride + first;
      for (std::int64_t p = 0; p < view.pixels; ++p) {
        T* y = y_ + example + p * view.block;
        const T* x = x_ + example + p * view.block;
        for (std::int64_t c = 0; c < view.width; ++c) {
          y[c] = (static_cast<float>(x[c]) - mean[c]) * scale[c] + shift[c];
        }
        if (activation_ != ActivationFunction::linear) {
          apply_activation(activation_, y, static_cast<std::size_t>(view.width));
        }
      }
    }
  }

  void run_training(const StepContext& context, const TileView& view, std::int64_t first, std::int64_t channel) {
    for (std::int64_t c = 0; c < view.width; ++c) {
      moving_mean_.gradient[channel + c] = 0;
      moving_variance_.gradient[channel + c] = 0;
    }
    const auto replica_weight = 1.0F / static_cast<float>(context.total_replicas);
    for (std::size_t replica = 0; replica < context.replicas.size(); ++replica) {
      const auto [begin, end] = examples_of(context, replica);
      if (begin == end) continue;
      const double count = static_cast<double>(end - begin) * static_cast<double>(view.pixels);
      TileSums sums;
      TileSums unused;
      sum_tile(
          view, x_ + first, x_ + first, begin, end, sums, unused, [](float x, float, std::int64_t) { return x; },
          [](float, float, std::int64_t) { return 0.0F; });
      float* mean = statistics_of(replica) + channel;
      float* inverse = mean + tensor_.channels;
      for (std::int64_t c = 0; c < view.width; ++c) mean[c] = static_cast<float>(sums[c] / count);
      sum_tile(
          view, x_ + first, x_ + first, begin, end, sums, unused,
          [mean](float x, float, std::int64_t c) { return (x - mean[c]) * (x - mean[c]); },
          [](float, float, std::int64_t) { return 0.0F; });
      for (std::int64_t c = 0; c < view.width; ++c) {
        const auto variance = static_cast<float>(sums[c] / count);
        inverse[c] = 1.0F / std::sqrt(variance + epsilon_);
        moving_mean_.gradient[channel + c] += mean[c] * replica_weight;
        moving_variance_.gradient[channel + c] += variance * replica_weight;
      }
      normalize(view, first, channel, begin, end, mean, inverse);
    }
  }

  void normalize_again(const StepContext& context, const TileView& view, std::int64_t first, std::int64_t channel) {
    for (std::size_t replica = 0; replica < context.replicas.size(); ++replica) {
      const auto [begin, end] = examples_of(context, replica);
      const float* mean = statistics_of(replica) + channel;
      normalize(view, first, channel, begin, end, mean, mean + tensor_.channels);
    }
  }

  void run_inference(const TileView& view, std::int64_t first, std::int64_t channel) {
    float inverse[tile];
    for (std::int64_t c = 0; c < view.width; ++c) {
      inverse[c] = 1.0F / std::sqrt(moving_variance_.value[channel + c] + epsilon_);
    }
    normalize(view, first, channel, 0, num_examples_, moving_mean_.value + channel, inverse);
  }

  /// The moving statistics do not depend on x: dx = gamma / sigma dy.
  void run_frozen_backward(const TileView& view, std::int64_t first, std::int64_t channel) const {
    float inverse[tile];
    for (std::int64_t c = 0; c < view.width; ++c) {
      inverse[c] = 1.0F / std::sqrt(moving_variance_.value[channel + c] + epsilon_);
    }
    const TileSums zeros{};
    propagate(view, first, channel, 0, num_examples_, moving_mean_.value + channel, inverse, zeros, zeros);
  }

  /// dx = gamma / sigma (dy - mean(dy) - xhat mean(dy xhat)), means over the replica (Ioffe and Szegedy, 2015).
  void run_backward(const StepContext& context, const TileView& view, std::int64_t first, std::int64_t channel) {
    for (const Vector* vector : {&gamma_, &beta_}) {
      if (vector->gradient != nullptr) std::fill_n(vector->gradient + channel, view.width, 0.0F);
    }
    for (std::size_t replica = 0; replica < context.replicas.size(); ++replica) {
      const auto [begin, end] = examples_of(context, replica);
      if (begin == end) continue;
      const float* mean = statistics_of(replica) + channel;
      const float* inverse = mean + tensor_.channels;
      TileSums gradient_sums;
      TileSums projected_sums;
      sum_tile(
          view, x_ + first, y_gradient_ + first, begin, end, gradient_sums, projected_sums,
          [](float, float dy, std::int64_t) { return dy; },
          [mean, inverse](float x, float dy, std::int64_t c) { return dy * (x - mean[c]) * inverse[c]; });
      for (std::int64_t c = 0; c < view.width; ++c) {
        if (gamma_.gradient != nullptr) gamma_.gradient[channel + c] += static_cast<float>(projected_sums[c]);
        if (beta_.gradient != nullptr) beta_.gradient[channel + c] += static_cast<float>(gradient_sums[c]);
      }
      if (input_gradient_) {
        propagate(view, first, channel, begin, end, mean, inverse, gradient_sums, projected_sums);
      }
    }
  }

  void propagate(const TileView& view, std::int64_t first, std::int64_t channel, std::size_t begin, std::size_t end,
                 const float* mean, const float* inverse, const TileSums& gradient_sums,
                 const TileSums& projected_sums) const {
    const double count = static_cast<double>(end - begin) * static_cast<double>(view.pixels);
    float scale[tile];
    float gradient_mean[tile];
    float projected_mean[tile];
    for (std::int64_t c = 0; c < view.width; ++c) {
      scale[c] = inverse[c] * (gamma_.value != nullptr ? gamma_.value[channel + c] : 1.0F);
      gradient_mean[c] = static_cast<float>(gradient_sums[c] / count);
      projected_mean[c] = static_cast<float>(projected_sums[c] / count);
    }
    for (std::size_t r = begin; r < end; ++r) {
      const std::int64_t example = static_cast<std::int64_t>(r) * view.example_stride + first;
      for (std::int64_t p = 0; p < view.pixels; ++p) {
        const std::int64_t at = example + p * view.block;
        for (std::int64_t c = 0; c < view.width; ++c) {
          const float projected = (static_cast<float>(x_[at + c]) - mean[c]) * inverse[c] * projected_mean[c];
          x_gradient_[at + c] = (static_cast<float>(y_gradient_[at + c]) - gradient_mean[c] - projected) * scale[c];
        }
        if (input_activation_ != ActivationFunction::linear) {
          apply_derivative(input_activation_, x_ + at, x_gradient_ + at, static_cast<std::size_t>(view.width));
        }
      }
    }
  }

  bool backward_;
  bool recomputes_;
  bool frozen_;
  ActivationFunction activation_;
  ActivationFunction input_activation_;
  bool input_gradient_;
  const TensorSpec& tensor_;
  float epsilon_;
  int threads_;
  std::size_t first_example_;
  std::size_t num_examples_;
  const T* x_;
  T* y_;
  T* x_gradient_;
  const T* y_gradient_;
  float* statistics_;
  Vector gamma_, beta_, moving_mean_, moving_variance_;
};

}  // namespace

std::unique_ptr<Kernel> make_batch_normalization(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<BatchNormalizationKernel<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_recomputed_normalization(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<BatchNormalizationKernel<decltype(zero)>>(scope, true);
  });
}

}  // namespace lockstep
