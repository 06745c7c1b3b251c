// Elementwise and per-example operations: unfused activations, Dropout, softmax.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "core/dropout_mask.hpp"
#include "layers/activation_functions.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace lockstep {

namespace {

template <typename T>
class Elementwise : public Kernel {
 public:
  explicit Elementwise(const KernelScope& scope)
      : operation_(scope.operation),
        tensor_(scope.output()),
        first_example_(scope.first_example),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        x_(scope.value<T>(operation_.input)),
        y_(scope.value<T>(operation_.output)),
        x_gradient_(scope.gradient<T>(operation_.input)),
        y_gradient_(scope.gradient<T>(operation_.output)) {}

  void run(const StepContext& context) final {
    const std::int64_t elements = tensor_.elements();
    const bool backward = is_backward(operation_);
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t r = 0; r < num_examples_; ++r) {
      const std::int64_t at = r * elements;
      if (backward) {
        run_backward(r, x_ + at, y_ + at, y_gradient_ + at, x_gradient_ + at);
        apply_derivative(operation_.input_activation, x_ + at, x_gradient_ + at, static_cast<std::size_t>(elements));
      } else {
        run_forward(r, context, x_ + at, y_ + at);
      }
    }
  }

 protected:
  virtual void run_forward(std::int64_t example, const StepContext& context, const T* x, T* y) = 0;
  virtual void run_backward(std::int64_t example, const T* x, const T* y, const T* y_gradient, T* x_gradient) = 0;
  [[nodiscard]] const TensorSpec& tensor() const { return tensor_; }
  [[nodiscard]] const Operation& operation() const { return operation_; }
  [[nodiscard]] std::size_t first_example() const { return first_example_; }

 private:
  Operation operation_;
  const TensorSpec& tensor_;
  std::size_t first_example_;
  std::int64_t num_examples_;
  int threads_;
  const T* x_;
  T* y_;
  T* x_gradient_;
  const T* y_gradient_;
};

template <typename T>
class ActivationKernel final : public Elementwise<T> {
 public:
  using Elementwise<T>::Elementwise;

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    const std::int64_t elements = this->tensor().elements();
    std::copy_n(x, elements, y);
    apply_activation(this->operation().activation, y, static_cast<std::size_t>(elements));
  }
  /// The kernel that wrote y's gradient has already multiplied it by a derivative that is computed from y.
  void run_backward(std::int64_t /*example*/, const T* x, const T* /*y*/, const T* y_gradient, T* x_gradient) override {
    const std::int64_t elements = this->tensor().elements();
    std::copy_n(y_gradient, elements, x_gradient);
    const ActivationFunction function = this->operation().activation;
    if (derivative_of(function) == Derivative::from_input) {
      apply_derivative(function, x, x_gradient, static_cast<std::size_t>(elements));
    }
  }
};

template <typename T>
class SoftmaxKernel final : public Elementwise<T> {
 public:
  using Elementwise<T>::Elementwise;

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    const std::int64_t channels = this->tensor().channels;
    for (std::int64_t at = 0; at < this->tensor().elements(); at += channels) {
      float largest = x[at];
      for (std::int64_t c = 1; c < channels; ++c) largest = std::max(largest, static_cast<float>(x[at + c]));
      float sum = 0;
      for (std::int64_t c = 0; c < channels; ++c) sum += std::exp(static_cast<float>(x[at + c]) - largest);
      for (std::int64_t c = 0; c < channels; ++c) y[at + c] = std::exp(static_cast<float>(x[at + c]) - largest) / sum;
    }
  }
  void run_backward(std::int64_t /*example*/, const T* /*x*/, const T* y, const T* y_gradient, T* x_gradient) override {
    const std::int64_t channels = this->tensor().channels;
    for (std::int64_t at = 0; at < this->tensor().elements(); at += channels) {
      float dot = 0;
      for (std::int64_t c = 0; c < channels; ++c) {
        dot += static_cast<float>(y[at + c]) * static_cast<float>(y_gradient[at + c]);
      }
      for (std::int64_t c = 0; c < channels; ++c) {
        x_gradient[at + c] = static_cast<float>(y[at + c]) * (static_cast<float>(y_gradient[at + c]) - dot);
      }
    }
  }
};

/// The mask is a hash of seed, step, layer, example and element, so it does not depend on the rank. Forward saves it
/// for backward.
template <typename T>
class DropoutKernel final : public Elementwise<T> {
 public:
  explicit DropoutKernel(const KernelScope& scope)
      : Elementwise<T>(scope),
        rate_(static_cast<float>(std::get<Dropout>(scope.layer().layer).rate)),
        layer_(static_cast<std::uint32_t>(scope.operation.layer)),
        kept_(scope.saved_for_backward(scope.operation.output)) {}

 protected:
  void run_forward(std::int64_t example, const StepContext& context, const T* x, T* y) override {
    const TensorSpec& tensor = this->tensor();
    const std::int64_t elements = tensor.elements();
    if (!context.training) {
      std::copy_n(x, elements, y);
      return;
    }
    std::uint8_t* kept = kept_ + example * elements;
    const auto batch_index =
        static_cast<std::uint32_t>(context.batch_offset + this->first_example() + static_cast<std::size_t>(example));
    const DropoutMask mask(context.seed, context.step, layer_, rate_);
    if (!has_whole_quads(tensor)) {
      for (std::int64_t i = 0; i < elements; ++i) {
        const std::int64_t at = tensor.offset_of_keras_index(i);
        kept[at] = mask.keep(batch_index, static_cast<std::uint32_t>(tensor.global_keras_index(i))) ? 1 : 0;
        y[at] = kept[at] != 0 ? static_cast<float>(x[at]) * mask.scale() : 0.0F;
      }
      return;
    }
    for (std::int64_t group = 0; group < elements; group += 4) {
      const auto keep = mask.keep_four(batch_index, static_cast<std::uint32_t>(tensor.global_keras_index(group) / 4));
      for (std::int64_t i = group; i < std::min(group + 4, elements); ++i) {
        const std::int64_t at = tensor.offset_of_keras_index(i);
        kept[at] = keep[i - group] ? 1 : 0;
        y[at] = keep[i - group] ? static_cast<float>(x[at]) * mask.scale() : 0.0F;
      }
    }
  }
  void run_backward(std::int64_t example, const T* /*x*/, const T* /*y*/, const T* y_gradient, T* x_gradient) override {
    const std::int64_t elements = this->tensor().elements();
    const std::uint8_t* kept = kept_ + example * elements;
    const float scale = 1.0F / (1.0F - rate_);
    for (std::int64_t i = 0; i < elements; ++i) {
      x_gradient[i] = kept[i] != 0 ? static_cast<float>(y_gradient[i]) * scale : 0.0F;
    }
  }

 private:
  /// Whether each aligned group of four elements in this shard is an aligned group of four in the unsharded tensor.
  [[nodiscard]] static bool has_whole_quads(const TensorSpec& tensor) {
    return tensor.whole_channels == 0 ||
           (tensor.channels % 4 == 0 && tensor.first_channel % 4 == 0 && tensor.whole_channels % 4 == 0);
  }

  float rate_;
  std::uint32_t layer_;
  std::uint8_t* kept_;
};

template <template <typename> typename KernelOf>
std::unique_ptr<Kernel> make_of(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<KernelOf<decltype(zero)>>(scope);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_activation(const KernelScope& scope) { return make_of<ActivationKernel>(scope); }

std::unique_ptr<Kernel> make_dropout(const KernelScope& scope) { return make_of<DropoutKernel>(scope); }

std::unique_ptr<Kernel> make_softmax(const KernelScope& scope) { return make_of<SoftmaxKernel>(scope); }

}  // namespace lockstep
