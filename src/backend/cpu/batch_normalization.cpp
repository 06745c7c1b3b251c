// BatchNormalization with separate statistics for each replica, a tile of channels at a time: a rank may compute
// several replicas of unequal size. The moving averages are all-reduced together with the gradients. With
// `synchronized` the whole batch is one replica. If each rank has a slice of it, a kernel before this one makes the
// rank's sums, which the ranks all-reduce: of the deviations from the moving mean and of their squares, so that a large
// mean takes no digits from the variance, and in backward of the gradients.
#include "backend/cpu/batch_normalization_loops.hpp"
#include "backend/cpu/kernel.hpp"
#include "core/vector_width.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

namespace lockstep {

namespace batch_normalization {

namespace {

template <typename T>
class BatchNormalizationKernel final : public Kernel {
 public:
  /// `recomputes`: has the examples of a kernel that reads the output in backward.
  explicit BatchNormalizationKernel(const KernelScope& scope, bool recomputes = false)
      : kind_(scope.operation.kind),
        backward_(scope.is_backward()),
        recomputes_(recomputes),
        frozen_(scope.operation.is_frozen),
        synchronized_(std::get<BatchNormalization>(scope.layer().layer).synchronized),
        activation_(scope.operation.activation),
        derives_activation_(scope.operation.derives_activation),
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
    if (const std::optional<int>& sums = scope.operation.partial_sum) {
      partial_sums_ = makes_partial_sum(scope.operation) ? scope.weights_gradient(*sums) : nullptr;
      sums_ = scope.weights(*sums);
    }
    // Several threads share the channels, so they take narrow tiles. The bits are the same.
    const std::int64_t widest = threads_ > 1 ? narrow_tile : wide_tile;
    const std::int64_t block = tensor_.block();
    for (std::int64_t channel = 0; channel < tensor_.channels;) {
      const std::int64_t within = channel % block;
      const std::int64_t left = block - within;
      const std::int64_t width = left >= widest ? widest : std::min(left, narrow_tile);
      const std::int64_t plane = channel - within;
      tiles_.push_back({channel, width, plane * tensor_.height * tensor_.width + within});
      channel += width;
    }
  }

  void run(const StepContext& context) override {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (const Tile& channels : tiles_) {
      if (kind_ == OperationKind::batch_statistics) {
        add_statistics(channels);
      } else if (kind_ == OperationKind::batch_gradient_sums) {
        add_gradients(channels);
      } else if (backward_ && frozen_) {
        run_frozen_backward(channels);
      } else if (backward_) {
        run_backward(context, channels);
      } else if (recomputes_ && !frozen_) {
        normalize_again(context, channels);
      } else if (context.training && !frozen_) {
        run_training(context, channels);
      } else {
        run_inference(channels);
      }
      simd::finish_streaming();
    }
  }

 private:
  struct Vector {
    const float* value = nullptr;
    float* gradient = nullptr;
  };

  struct Tile {
    std::int64_t channel;  ///< the first one
    std::int64_t width;    ///< channels
    std::int64_t first;    ///< offset in an example
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

  /// Calls visit(replica, examples, weight) for each replica of which this kernel computes examples. The weights of all
  /// ranks' replicas add up to 1.
  template <typename Visit>
  void for_each_replica(const StepContext& context, const Visit& visit) const {
    if (synchronized_) {
      visit(0, Range{0, num_examples_},
            static_cast<float>(static_cast<double>(num_examples_) * context.gradient_scale));
      return;
    }
    const auto weight = 1.0F / static_cast<float>(context.total_replicas);
    for (std::size_t replica = 0; replica < context.replicas.size(); ++replica) {
      const Range examples = examples_of(context, replica);
      if (!examples.empty()) visit(replica, examples, weight);
    }
  }

  /// The pixels of the whole batch, of which all ranks' sums are.
  [[nodiscard]] double batch_count(const StepContext& context) const {
    return std::round(1 / context.gradient_scale) * static_cast<double>(tensor_.height * tensor_.width);
  }

  /// A tile of these examples. Of images of one pixel all examples are one row.
  [[nodiscard]] TileView view_of(const Tile& channels, Range examples) const {
    const auto rows = static_cast<std::int64_t>(examples.end - examples.begin);
    const std::int64_t pixels = tensor_.height * tensor_.width;
    const bool is_pixel = pixels == 1;
    return {.width = channels.width,
            .pixels = is_pixel ? rows : pixels,
            .stride = is_pixel ? tensor_.elements() : tensor_.block(),
            .rows = is_pixel ? 1 : rows,
            .row_stride = tensor_.elements(),
            .first = static_cast<std::int64_t>(examples.begin) * tensor_.elements() + channels.first};
  }

  /// A replica's mean and 1 / sqrt(variance + epsilon), which forward saves for backward: 2 * channels floats.
  [[nodiscard]] float* saved_statistics(std::size_t replica) const {
    return statistics_ + static_cast<std::int64_t>(replica) * 2 * tensor_.channels;
  }

  /// gamma / sigma
  [[nodiscard]] TileFloats scale_of(const Tile& channels, const float* inverse) const {
    TileFloats scale{};
    for (std::int64_t c = 0; c < channels.width; ++c) {
      scale[c] = inverse[c] * (gamma_.value != nullptr ? gamma_.value[channels.channel + c] : 1.0F);
    }
    return scale;
  }

  [[nodiscard]] Normalization normalization_of(const Tile& channels, const float* mean, const float* inverse) const {
    Normalization by{.scale = scale_of(channels, inverse)};
    if (!backward_ || derives_activation_) by.clip = Clip::of(activation_);
    std::copy_n(mean, channels.width, by.mean.data());
    if (beta_.value != nullptr) std::copy_n(beta_.value + channels.channel, channels.width, by.shift.data());
    return by;
  }

  void normalize(const Tile& channels, Range examples, const float* mean, const float* inverse) const {
    const Normalization by = normalization_of(channels, mean, inverse);
    const TileView view = view_of(channels, examples);
    const bool streams = may_stream(view, y_);
    view.for_each_run([&](std::int64_t at, std::int64_t pixels) {
      const Normalization* const from = &by;
      const T* const x = x_ + at;
      T* const y = y_ + at;
      const std::int64_t stride = view.stride;
      run_of_width(view.width, [=]<int vectors>(std::int64_t width) {
        normalize_run<vectors>(*from, width, stride, pixels, x, y, streams);
      });
      if (!by.clip.is_wanted && activation_ != ActivationFunction::linear) {
        for_each_array(view, pixels,
                       [&](std::int64_t from, std::size_t count) { apply_activation(activation_, y + from, count); });
      }
    });
  }

  /// Whether a tile of this array is written past the caches: in whole cache lines, of a tensor that exceeds a core's
  /// share of them, and by no second pass.
  [[nodiscard]] bool may_stream(const TileView& view, const T* array) const {
    constexpr double cached_bytes = 4 << 20;
    const bool is_vectorized =
        (activation_ == ActivationFunction::linear || Clip::of(activation_).is_wanted) &&
        (input_activation_ == ActivationFunction::linear || Clip::of(input_activation_).is_wanted);
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(array) % 64 == 0 &&
                            (view.width | view.stride | view.row_stride | view.first) % narrow_tile == 0;
    const double bytes = view.count() * static_cast<double>(tensor_.channels) * sizeof(T);
    return std::is_same_v<T, float> && is_vectorized && is_aligned && bytes > cached_bytes;
  }

  /// Calls visit(offset, elements) for the contiguous parts of a run.
  template <typename Visit>
  static void for_each_array(const TileView& view, std::int64_t pixels, const Visit& visit) {
    if (view.is_contiguous()) return visit(0, static_cast<std::size_t>(pixels * view.width));
    for (std::int64_t p = 0; p < pixels; ++p) visit(p * view.stride, static_cast<std::size_t>(view.width));
  }

  /// Of a tile's channels.
  struct Statistics {
    TileFloats mean = {};
    TileFloats variance = {};
  };

  [[nodiscard]] Statistics statistics_of(const Tile& channels, const TileView& view) const {
    Moments moments;
    moments_of(view, x_, moments);
    Statistics statistics;
    for (std::int64_t c = 0; c < channels.width; ++c) {
      statistics.mean[c] = static_cast<float>(moments.mean[c]);
      statistics.variance[c] = static_cast<float>(moments.squares[c] / view.count());
    }
    return statistics;
  }

  void add_statistics(const Tile& channels) {
    const TileView view = view_of(channels, {0, num_examples_});
    Moments moments;
    moments_of(view, x_, moments);
    float* const deviations = partial_sums_ + channels.channel;
    float* const squares = deviations + tensor_.channels;
    for (std::int64_t c = 0; c < channels.width; ++c) {
      const double deviation = moments.mean[c] - moving_mean_.value[channels.channel + c];
      deviations[c] = static_cast<float>(view.count() * deviation);
      squares[c] = static_cast<float>(moments.squares[c] + view.count() * deviation * deviation);
    }
  }

  /// Of all ranks' sums.
  [[nodiscard]] Statistics summed_statistics(const Tile& channels, double count) const {
    const float* const deviations = sums_ + channels.channel;
    const float* const squares = deviations + tensor_.channels;
    Statistics statistics;
    for (std::int64_t c = 0; c < channels.width; ++c) {
      const double deviation = deviations[c] / count;
      statistics.mean[c] = static_cast<float>(moving_mean_.value[channels.channel + c] + deviation);
      statistics.variance[c] = static_cast<float>(std::max(squares[c] / count - deviation * deviation, 0.0));
    }
    return statistics;
  }

  void run_training(const StepContext& context, const Tile& channels) {
    float* const mean_gradient = moving_mean_.gradient + channels.channel;
    float* const variance_gradient = moving_variance_.gradient + channels.channel;
    std::fill_n(mean_gradient, channels.width, 0.0F);
    std::fill_n(variance_gradient, channels.width, 0.0F);
    for_each_replica(context, [&](std::size_t replica, const Range& examples, float weight) {
      const Statistics statistics = sums_ != nullptr ? summed_statistics(channels, batch_count(context))
                                                     : statistics_of(channels, view_of(channels, examples));
      float* const mean = saved_statistics(replica) + channels.channel;
      float* const inverse = mean + tensor_.channels;
      for (std::int64_t c = 0; c < channels.width; ++c) {
        mean[c] = statistics.mean[c];
        inverse[c] = 1.0F / std::sqrt(statistics.variance[c] + epsilon_);
        mean_gradient[c] += mean[c] * weight;
        variance_gradient[c] += statistics.variance[c] * weight;
      }
      normalize(channels, examples, mean, inverse);
    });
  }

  void normalize_again(const StepContext& context, const Tile& channels) {
    for_each_replica(context, [&](std::size_t replica, const Range& examples, float /*weight*/) {
      const float* mean = saved_statistics(replica) + channels.channel;
      normalize(channels, examples, mean, mean + tensor_.channels);
    });
  }

  /// 1 / sqrt(variance + epsilon) of the moving variance
  [[nodiscard]] TileFloats moving_inverse(const Tile& channels) const {
    TileFloats inverse{};
    for (std::int64_t c = 0; c < channels.width; ++c) {
      inverse[c] = 1.0F / std::sqrt(moving_variance_.value[channels.channel + c] + epsilon_);
    }
    return inverse;
  }

  void run_inference(const Tile& channels) {
    normalize(channels, {0, num_examples_}, moving_mean_.value + channels.channel, moving_inverse(channels).data());
  }

  /// The moving statistics do not depend on x: dx = gamma / sigma dy.
  void run_frozen_backward(const Tile& channels) const {
    propagate(
        channels, {0, num_examples_},
        {.forward = normalization_of(channels, moving_mean_.value + channels.channel, moving_inverse(channels).data()),
         .clip = Clip::of(input_activation_)});
  }

  /// dx = gamma / sigma (dy - mean(dy) - xhat mean(dy xhat)), means over the replica (Ioffe and Szegedy, 2015).
  void run_backward(const StepContext& context, const Tile& channels) {
    for (const Vector* vector : {&gamma_, &beta_}) {
      if (vector->gradient != nullptr) std::fill_n(vector->gradient + channels.channel, channels.width, 0.0F);
    }
    for_each_replica(context, [&](std::size_t replica, const Range& examples, float weight) {
      const bool is_summed = sums_ != nullptr;
      const float* const inverse = saved_statistics(replica) + tensor_.channels + channels.channel;
      const double count = is_summed ? batch_count(context) : view_of(channels, examples).count();
      const float share = is_summed ? weight : 1;  // of the gradients of gamma and beta, which ranks add up again
      const GradientSums sums = is_summed ? summed_gradients(channels) : gradients_of(channels, replica, examples);
      Propagation by{.forward = normalization_of(channels, inverse - tensor_.channels, inverse),
                     .clip = Clip::of(input_activation_)};
      for (std::int64_t c = 0; c < channels.width; ++c) {
        const std::int64_t channel = channels.channel + c;
        if (gamma_.gradient != nullptr) gamma_.gradient[channel] += share * static_cast<float>(sums.projected[c]);
        if (beta_.gradient != nullptr) beta_.gradient[channel] += share * static_cast<float>(sums.gradient[c]);
        by.gradient_mean[c] = static_cast<float>(sums.gradient[c] / count);
        by.slope[c] = static_cast<float>(sums.projected[c] / count * inverse[c]);
      }
      if (input_gradient_) propagate(channels, examples, by);
    });
  }

  /// Of a tile's channels: the sums of dy and of dy xhat.
  struct GradientSums {
    TileSums gradient = {};
    TileSums projected = {};
  };

  [[nodiscard]] GradientSums gradients_of(const Tile& channels, std::size_t replica, const Range& examples) const {
    const float* const mean = saved_statistics(replica) + channels.channel;
    const float* const inverse = mean + tensor_.channels;
    GradientSums sums;
    sum_gradients(view_of(channels, examples), normalization_of(channels, mean, inverse), x_, y_gradient_,
                  sums.gradient, sums.projected);
    for (std::int64_t c = 0; c < channels.width; ++c) sums.projected[c] *= inverse[c];
    return sums;
  }

  void add_gradients(const Tile& channels) {
    const GradientSums sums = gradients_of(channels, 0, {0, num_examples_});
    for (std::int64_t c = 0; c < channels.width; ++c) {
      partial_sums_[channels.channel + c] = static_cast<float>(sums.gradient[c]);
      partial_sums_[tensor_.channels + channels.channel + c] = static_cast<float>(sums.projected[c]);
    }
  }

  /// Of all ranks' sums.
  [[nodiscard]] GradientSums summed_gradients(const Tile& channels) const {
    GradientSums sums;
    std::copy_n(sums_ + channels.channel, channels.width, sums.gradient.begin());
    std::copy_n(sums_ + tensor_.channels + channels.channel, channels.width, sums.projected.begin());
    return sums;
  }

  void propagate(const Tile& channels, Range examples, const Propagation& by) const {
    const TileView view = view_of(channels, examples);
    const bool streams = may_stream(view, x_gradient_);
    view.for_each_run([&](std::int64_t at, std::int64_t pixels) {
      const Propagation* const from = &by;
      const T* const x = x_ + at;
      const T* const y_gradient = y_gradient_ + at;
      T* const x_gradient = x_gradient_ + at;
      const std::int64_t stride = view.stride;
      run_of_width(view.width, [=]<int vectors>(std::int64_t width) {
        propagate_run<vectors>(*from, width, stride, pixels, x, y_gradient, x_gradient, streams);
      });
      if (!by.clip.is_wanted && input_activation_ != ActivationFunction::linear) {
        for_each_array(view, pixels, [&](std::int64_t from, std::size_t count) {
          apply_derivative(input_activation_, x + from, x_gradient + from, count);
        });
      }
    });
  }

  OperationKind kind_;
  bool backward_;
  bool recomputes_;
  bool frozen_;
  bool synchronized_;
  ActivationFunction activation_;
  bool derives_activation_;
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
  float* partial_sums_ = nullptr;  ///< this rank's, of a kernel that makes them: two floats for each channel
  const float* sums_ = nullptr;    ///< all ranks'; null if this rank has the whole batch
  Vector gamma_, beta_, moving_mean_, moving_variance_;
  std::vector<Tile> tiles_;
};

}  // namespace

}  // namespace batch_normalization

std::unique_ptr<Kernel> make_batch_normalization(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<batch_normalization::BatchNormalizationKernel<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_recomputed_normalization(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<batch_normalization::BatchNormalizationKernel<decltype(zero)>>(scope, true);
  });
}

}  // namespace lockstep
