// BatchNormalization with separate statistics for each replica. It uses its own kernels, because a rank may compute
// several replicas of unequal size. The statistics are all-reduced together with the gradients.
#include "backend/cuda/channel_reduction.cuh"
#include "backend/cuda/kernel.hpp"

#include <memory>

namespace lockstep::cuda {

namespace {

template <typename T>
class BatchNormalizationKernel final : public Kernel {
 public:
  explicit BatchNormalizationKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        backward_(scope.is_backward()),
        frozen_(scope.operation.is_frozen),
        input_gradient_(scope.operation.input_gradient),
        function_(scope.operation.activation),
        input_function_(scope.operation.input_activation),
        channels_(static_cast<std::size_t>(scope.input().channels)),
        pixels_(static_cast<std::size_t>(scope.input().height * scope.input().width)),
        epsilon_(static_cast<float>(std::get<BatchNormalization>(scope.layer().layer).epsilon)),
        arguments_(scope.arguments),
        scratch_(scope.reduction_scratch),
        x_(scope.value<T>(scope.operation.input)),
        y_(scope.value<T>(scope.operation.output)),
        x_gradient_(scope.gradient<T>(scope.operation.input)),
        y_gradient_(scope.gradient<T>(scope.operation.output)),
        statistics_(scope.saved_for_backward<float>(scope.operation.output)) {
    const auto& layer = std::get<BatchNormalization>(scope.layer().layer);
    int parameter = scope.operation.parameter;
    if (layer.scale) bind(scope, parameter++, gamma_);
    if (layer.center) bind(scope, parameter++, beta_);
    bind(scope, parameter++, moving_mean_);
    bind(scope, parameter, moving_variance_);
  }

  void enqueue(const StepContext& context) override {
    if (backward_ && frozen_) {
      for_each(stream_, context.examples.size() * pixels_ * channels_,
               FrozenNormalizationInputGradient<T>{x_, y_gradient_, x_gradient_, moving_variance_.value, gamma_.value,
                                                   epsilon_, static_cast<Index>(channels_), input_function_});
      return;
    }
    if (!backward_ && (frozen_ || !context.training)) {
      normalize(0, context.examples.size(), moving_mean_.value, nullptr);
      return;
    }
    bool first = true;
    for (std::size_t replica = 0; replica < context.replicas.size(); ++replica) {
      const auto [begin, end] = context.replicas[replica];
      if (begin == end) continue;
      if (backward_) {
        run_backward(replica, begin, end, first);
      } else {
        run_training(replica, begin, end, first);
      }
      first = false;
    }
  }

 private:
  struct Vector {
    float* value = nullptr;
    float* gradient = nullptr;
  };

  static void bind(const KernelScope& scope, int parameter, Vector& vector) {
    vector = {scope.weights(parameter), scope.operation.is_frozen ? nullptr : scope.weights_gradient(parameter)};
  }

  /// Four arrays per replica: mean, inverse deviation, and two that backward uses as scratch memory.
  [[nodiscard]] float* statistics(std::size_t replica, std::size_t array) const {
    return statistics_ + (replica * 4 + array) * channels_;
  }

  void run_training(std::size_t replica, std::size_t begin, std::size_t end, bool first) const {
    const std::size_t count = (end - begin) * pixels_;
    const Statistics kept{statistics(replica, 0), statistics(replica, 1)};
    reduce_channels(stream_, count, channels_, MomentTerms<T>{x_ + begin * pixels_ * channels_}, scratch_,
                    FinishMoments{static_cast<double>(count), epsilon_, kept, arguments_, moving_mean_.gradient,
                                  moving_variance_.gradient, first});
    normalize(begin, end, kept.mean, kept.inverse);
  }

  void normalize(std::size_t begin, std::size_t end, const float* mean, const float* inverse) const {
    const std::size_t at = begin * pixels_ * channels_;
    for_each(stream_, (end - begin) * pixels_ * channels_,
             Normalize<T>{x_ + at, y_ + at, mean, inverse, moving_variance_.value, gamma_.value, beta_.value, epsilon_,
                          static_cast<Index>(channels_), function_});
  }

  void run_backward(std::size_t replica, std::size_t begin, std::size_t end, bool first) const {
    const std::size_t count = (end - begin) * pixels_;
    const std::size_t at = begin * pixels_ * channels_;
    const Statistics kept{statistics(replica, 0), statistics(replica, 1)};
    float* gradient_mean = statistics(replica, 2);
    float* projected_mean = statistics(replica, 3);
    reduce_channels(stream_, count, channels_, ProjectionTerms<T>{x_ + at, y_gradient_ + at, kept}, scratch_,
                    FinishProjection{static_cast<double>(count), gamma_.gradient, beta_.gradient, gradient_mean,
                                     projected_mean, first});
    if (!input_gradient_) return;
    for_each(stream_, count * channels_,
             BatchNormalizationInputGradient<T>{x_ + at, y_gradient_ + at, x_gradient_ + at, kept, gamma_.value,
                                                gradient_mean, projected_mean, static_cast<Index>(channels_),
                                                input_function_});
  }

  cudaStream_t stream_;
  bool backward_;
  bool frozen_;
  bool input_gradient_;
  ActivationFunction function_;
  ActivationFunction input_function_;
  std::size_t channels_;
  std::size_t pixels_;
  float epsilon_;
  const StepArguments* arguments_;
  std::byte* scratch_;
  const T* x_;
  T* y_;
  T* x_gradient_;
  const T* y_gradient_;
  float* statistics_;
  Vector gamma_, beta_, moving_mean_, moving_variance_;
};

}  // namespace

std::unique_ptr<Kernel> make_batch_normalization(const KernelScope& scope) {
  if (std::get<BatchNormalization>(scope.layer().layer).synchronized) refuse_layer(scope, " with synchronized=True");
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<BatchNormalizationKernel<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep::cuda
