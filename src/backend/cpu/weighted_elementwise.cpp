// Elementwise functions with a trained weight for each element of an example, or for all elements along some axes:
// PReLU's slopes and LayerScale's factors.
#include "backend/cpu/example_kernel.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

namespace {

struct PReLUFormula {
  static float value(float x, float w) { return x > 0 ? x : w * x; }
  /// Keras subtracts w * relu(-x) from relu(x), so the derivative at 0 is 0.
  static float by_input(float x, float w) { return x > 0 ? 1.0F : x < 0 ? w : 0.0F; }
  static float by_weight(float x) { return x > 0 ? 0.0F : x; }
};

struct LayerScaleFormula {
  static float value(float x, float w) { return w * x; }
  static float by_input(float /*x*/, float w) { return w; }
  static float by_weight(float x) { return x; }
};

template <typename T, typename Formula>
class WeightedKernel final : public ExampleKernel<T> {
 public:
  explicit WeightedKernel(const KernelScope& scope)
      : ExampleKernel<T>(scope), weights_(scope.weights(scope.operation.parameter)) {
    const Shape& shape = scope.graph.parameters[scope.operation.parameter].info.shape;
    num_weights_ = shape.elements();
    find_weight_indices(scope.layer().input_shape, shape);
    if (!scope.is_backward()) return;
    weights_gradient_ = scope.weights_gradient(scope.operation.parameter);
    of_examples_.resize(static_cast<std::size_t>(this->num_examples() * num_weights_));
  }

  void run(const StepContext& context) override {
    ExampleKernel<T>::run(context);
    if (weights_gradient_ == nullptr) return;
    std::fill_n(weights_gradient_, num_weights_, 0.0F);
    const float* of_example = of_examples_.data();
    for (std::int64_t example = 0; example < this->num_examples(); ++example, of_example += num_weights_) {
      for (std::int64_t w = 0; w < num_weights_; ++w) weights_gradient_[w] += of_example[w];
    }
  }

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    for (std::size_t i = 0; i < indices_.size(); ++i) {
      y[i] = Formula::value(static_cast<float>(x[i]), weights_[indices_[i]]);
    }
  }
  void run_backward(std::int64_t example, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& at) override {
    float* const gradient = of_examples_.data() + example * num_weights_;
    std::fill_n(gradient, num_weights_, 0.0F);
    for (std::size_t i = 0; i < indices_.size(); ++i) {
      const auto x = static_cast<float>(at.x[i]);
      const auto y_gradient = static_cast<float>(at.y_gradient[i]);
      gradient[indices_[i]] += y_gradient * Formula::by_weight(x);
      if (at.x_gradient != nullptr) at.x_gradient[i] = y_gradient * Formula::by_input(x, weights_[indices_[i]]);
    }
  }

 private:
  /// For each element, in memory order, the index of its weight. Weights have the last axes of the input, some of
  /// size 1.
  void find_weight_indices(const Shape& shape, const Shape& weights) {
    indices_.resize(static_cast<std::size_t>(shape.elements()));
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      std::int64_t rest = i;
      std::int64_t index = 0;
      std::int64_t stride = 1;
      for (std::size_t back = 1; back <= weights.rank(); ++back) {
        const std::int64_t along = rest % shape[shape.rank() - back];
        rest /= shape[shape.rank() - back];
        const std::int64_t extent = weights[weights.rank() - back];
        if (extent > 1) index += along * stride;
        stride *= extent;
      }
      indices_[static_cast<std::size_t>(this->input().offset_of_keras_index(i))] = static_cast<std::int32_t>(index);
    }
  }

  const float* weights_;
  float* weights_gradient_ = nullptr;
  std::int64_t num_weights_ = 0;
  std::vector<std::int32_t> indices_;
  std::vector<float> of_examples_;  ///< the gradients of the weights by example, which are then added in order
};

template <typename T>
using PReLUKernel = WeightedKernel<T, PReLUFormula>;
template <typename T>
using LayerScaleKernel = WeightedKernel<T, LayerScaleFormula>;

}  // namespace

std::unique_ptr<Kernel> make_prelu(const KernelScope& scope) { return make_for_type<PReLUKernel>(scope); }

std::unique_ptr<Kernel> make_layer_scale(const KernelScope& scope) { return make_for_type<LayerScaleKernel>(scope); }

}  // namespace lockstep
