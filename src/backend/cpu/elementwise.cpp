// Elementwise and per-example operations: unfused activations, Dropout, softmax.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/example_kernel.hpp"
#include "core/dropout_mask.hpp"
#include "layers/activation_functions.hpp"
#include "layers/regularization.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

namespace {

template <typename T>
class ActivationKernel final : public ExampleKernel<T> {
 public:
  using ExampleKernel<T>::ExampleKernel;

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    const std::int64_t elements = this->output().elements();
    std::copy_n(x, elements, y);
    apply_activation(this->operation().activation, y, static_cast<std::size_t>(elements));
  }
  /// The kernel that wrote y's gradient has already multiplied it by a derivative that is computed from y.
  void run_backward(std::int64_t /*example*/, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& at) override {
    const std::int64_t elements = this->output().elements();
    std::copy_n(at.y_gradient, elements, at.x_gradient);
    const ActivationFunction function = this->operation().activation;
    if (derivative_of(function) == Derivative::from_input) {
      apply_derivative(function, at.x, at.x_gradient, static_cast<std::size_t>(elements));
    }
  }
};

/// softmax, or its logarithm.
template <typename T>
class SoftmaxKernel final : public ExampleKernel<T> {
 public:
  explicit SoftmaxKernel(const KernelScope& scope)
      : ExampleKernel<T>(scope), is_log_(scope.operation.activation == activations::log_softmax) {}

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    const std::int64_t channels = this->output().channels;
    for (std::int64_t at = 0; at < this->output().elements(); at += channels) {
      float largest = x[at];
      for (std::int64_t c = 1; c < channels; ++c) largest = std::max(largest, static_cast<float>(x[at + c]));
      float sum = 0;
      for (std::int64_t c = 0; c < channels; ++c) sum += std::exp(static_cast<float>(x[at + c]) - largest);
      const float log_sum = is_log_ ? std::log(sum) : 0.0F;
      for (std::int64_t c = 0; c < channels; ++c) {
        const float below = static_cast<float>(x[at + c]) - largest;
        y[at + c] = is_log_ ? below - log_sum : std::exp(below) / sum;
      }
    }
  }
  void run_backward(std::int64_t /*example*/, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& of) override {
    const std::int64_t channels = this->output().channels;
    for (std::int64_t at = 0; at < this->output().elements(); at += channels) {
      float dot = 0;
      for (std::int64_t c = 0; c < channels; ++c) {
        dot += (is_log_ ? 1.0F : static_cast<float>(of.y[at + c])) * static_cast<float>(of.y_gradient[at + c]);
      }
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto y = static_cast<float>(of.y[at + c]);
        const auto gradient = static_cast<float>(of.y_gradient[at + c]);
        of.x_gradient[at + c] = is_log_ ? gradient - std::exp(y) * dot : y * (gradient - dot);
      }
    }
  }

 private:
  bool is_log_;
};

/// The mask is a hash of seed, step, layer, example and element, so it does not depend on the rank. Forward saves it
/// for backward.
template <typename T>
class DropoutKernel final : public ExampleKernel<T> {
 public:
  explicit DropoutKernel(const KernelScope& scope)
      : ExampleKernel<T>(scope),
        layer_(static_cast<std::uint32_t>(scope.operation.layer)),
        kept_(scope.saved_for_backward(scope.operation.output)),
        rule_(drop_rule(scope.layer().layer, scope.layer().input_shape)) {
    if (rule_.noise_shape.rank() == 0) return;
    const TensorSpec& tensor = scope.output();
    const std::int64_t channels = tensor.whole_channels > 0 ? tensor.whole_channels : tensor.channels;
    if (scope.layer().input_shape.elements() != tensor.height * tensor.width * channels) {
      throw UsageError(fmt::format("layer '{}' ({}) is called on tensors of several shapes, but has one noise_shape",
                                   scope.layer().name, scope.layer().class_name));
    }
    find_noise_indices(scope.layer().input_shape, rule_.noise_shape);
  }

 protected:
  void run_forward(std::int64_t example, const StepContext& context, const T* x, T* y) override {
    const TensorSpec& tensor = this->output();
    const std::int64_t elements = tensor.elements();
    if (!context.training) {
      std::copy_n(x, elements, y);
      return;
    }
    std::uint8_t* kept = kept_ + example * elements;
    const std::uint32_t batch_index = this->batch_index(example, context);
    const DropoutMask mask(context.seed, context.step, layer_, rule_.rate);
    if (!has_whole_quads(tensor) || !noise_indices_.empty()) {
      for (std::int64_t i = 0; i < elements; ++i) {
        const std::int64_t at = tensor.offset_of_keras_index(i);
        kept[at] = mask.keep(batch_index, noise_index(tensor.global_keras_index(i))) ? 1 : 0;
        y[at] = dropped(kept[at] != 0, x[at]);
      }
      return;
    }
    for (std::int64_t group = 0; group < elements; group += 4) {
      const auto keep = mask.keep_four(batch_index, static_cast<std::uint32_t>(tensor.global_keras_index(group) / 4));
      for (std::int64_t i = group; i < std::min(group + 4, elements); ++i) {
        const std::int64_t at = tensor.offset_of_keras_index(i);
        kept[at] = keep[i - group] ? 1 : 0;
        y[at] = dropped(keep[i - group], x[at]);
      }
    }
  }
  void run_backward(std::int64_t example, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& at) override {
    const std::int64_t elements = this->output().elements();
    const std::uint8_t* kept = kept_ + example * elements;
    for (std::int64_t i = 0; i < elements; ++i) {
      at.x_gradient[i] = kept[i] != 0 ? static_cast<float>(at.y_gradient[i]) * rule_.scale : 0.0F;
    }
  }

 private:
  /// Whether each aligned group of four elements in this shard is an aligned group of four in the unsharded tensor.
  [[nodiscard]] static bool has_whole_quads(const TensorSpec& tensor) {
    return tensor.whole_channels == 0 ||
           (tensor.channels % 4 == 0 && tensor.first_channel % 4 == 0 && tensor.whole_channels % 4 == 0);
  }

  /// Numbers the elements of the mask in row-major order, and finds that of each element of an example.
  void find_noise_indices(const Shape& shape, const Shape& noise) {
    noise_indices_.assign(static_cast<std::size_t>(shape.elements()), 0);
    std::int64_t inner = shape.elements();
    for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
      inner /= shape[axis];
      for (std::size_t i = 0; i < noise_indices_.size(); ++i) {
        const auto along = noise[axis] == 1 ? 0 : static_cast<std::int64_t>(i) / inner % shape[axis];
        noise_indices_[i] = static_cast<std::uint32_t>(noise_indices_[i] * noise[axis] + along);
      }
    }
  }

  /// The element of the mask for an element of the unsharded example.
  [[nodiscard]] std::uint32_t noise_index(std::int64_t element) const {
    return noise_indices_.empty() ? static_cast<std::uint32_t>(element)
                                  : noise_indices_[static_cast<std::size_t>(element)];
  }

  [[nodiscard]] float dropped(bool is_kept, T x) const {
    return is_kept ? static_cast<float>(x) * rule_.scale + rule_.shift : rule_.dropped;
  }

  std::uint32_t layer_;
  std::uint8_t* kept_;
  DropRule rule_;
  std::vector<std::uint32_t> noise_indices_;  ///< empty: every element is drawn independently
};

}  // namespace

std::unique_ptr<Kernel> make_activation(const KernelScope& scope) { return make_for_type<ActivationKernel>(scope); }

std::unique_ptr<Kernel> make_dropout(const KernelScope& scope) { return make_for_type<DropoutKernel>(scope); }

std::unique_ptr<Kernel> make_softmax(const KernelScope& scope) { return make_for_type<SoftmaxKernel>(scope); }

}  // namespace lockstep
