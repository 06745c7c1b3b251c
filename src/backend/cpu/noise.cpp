// GaussianNoise and GaussianDropout. Noise is a function of seed, step, layer, example and element, as Dropout's mask
// is.
#include "backend/cpu/example_kernel.hpp"
#include "core/gaussian_noise.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>

namespace lockstep {

namespace {

template <typename T>
class NoiseKernel final : public ExampleKernel<T> {
 public:
  explicit NoiseKernel(const KernelScope& scope)
      : ExampleKernel<T>(scope), layer_(static_cast<std::uint32_t>(scope.operation.layer)) {
    if (const auto* dropout = std::get_if<GaussianDropout>(&scope.layer().layer)) {
      multiplies_ = true;
      deviation_ = static_cast<float>(std::sqrt(dropout->rate / (1 - dropout->rate)));
    } else {
      deviation_ = static_cast<float>(std::get<GaussianNoise>(scope.layer().layer).stddev);
    }
  }

 protected:
  void run_forward(std::int64_t example, const StepContext& context, const T* x, T* y) override {
    if (!context.training) {
      std::copy_n(x, this->output().elements(), y);
      return;
    }
    for_each_noise(example, context, [&](std::int64_t at, float noise) {
      const auto value = static_cast<float>(x[at]);
      y[at] = multiplies_ ? value * (1.0F + noise) : value + noise;
    });
  }
  void run_backward(std::int64_t example, const StepContext& context,
                    const typename ExampleKernel<T>::Backward& at) override {
    if (!multiplies_) {
      std::copy_n(at.y_gradient, this->output().elements(), at.x_gradient);
      return;
    }
    for_each_noise(example, context, [&](std::int64_t i, float noise) {
      at.x_gradient[i] = static_cast<float>(at.y_gradient[i]) * (1.0F + noise);
    });
  }

 private:
  /// Calls visit(offset in memory, noise) for each element of an example.
  template <typename Visit>
  void for_each_noise(std::int64_t example, const StepContext& context, const Visit& visit) const {
    const TensorSpec& tensor = this->output();
    const GaussianNoiseSource source(context.seed, context.step, layer_);
    const std::uint32_t batch_index = this->batch_index(example, context);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const auto element = static_cast<std::uint32_t>(tensor.global_keras_index(i));
      visit(tensor.offset_of_keras_index(i), deviation_ * source.normal(batch_index, element));
    }
  }

  std::uint32_t layer_;
  bool multiplies_ = false;
  float deviation_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_noise(const KernelScope& scope) { return make_for_type<NoiseKernel>(scope); }

}  // namespace lockstep
