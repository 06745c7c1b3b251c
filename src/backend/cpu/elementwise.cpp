// Operations on each element, or each row, alone: activations that nothing fused, Dropout, softmax.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "core/dropout_mask.hpp"

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
        first_row_(scope.first_row),
        rows_(static_cast<std::int64_t>(scope.rows)),
        threads_(scope.threads),
        x_(scope.value<T>(operation_.input)),
        y_(scope.value<T>(operation_.output)),
        x_gradient_(scope.gradient<T>(operation_.input)),
        y_gradient_(scope.gradient<T>(operation_.output)) {}

  void run(const StepContext& context) final {
    const std::int64_t elements = tensor_.elements();
    const bool backward = operation_.kind > OperationKind::loss;
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t r = 0; r < rows_; ++r) {
      const std::int64_t at = r * elements;
      if (backward) {
        run_backward(r, y_ + at, y_gradient_ + at, x_gradient_ + at);
        apply_derivative(operation_.input_activation, x_ + at, x_gradient_ + at, static_cast<std::size_t>(elements));
      } else {
        run_forward(r, context, x_ + at, y_ + at);
      }
    }
  }

 protected:
  virtual void run_forward(std::int64_t row, const StepContext& context, const T* x, T* y) = 0;
  virtual void run_backward(std::int64_t row, const T* y, const T* y_gradient, T* x_gradient) = 0;
  [[nodiscard]] const TensorSpec& tensor() const { return tensor_; }
  [[nodiscard]] const Operation& operation() const { return operation_; }
  [[nodiscard]] std::size_t first_row() const { return first_row_; }

 private:
  Operation operation_;
  const TensorSpec& tensor_;
  std::size_t first_row_;
  std::int64_t rows_;
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
  void run_forward(std::int64_t /*row*/, const StepContext& /*context*/, const T* x, T* y) override {
    const std::int64_t elements = this->tensor().elements();
    std::copy_n(x, elements, y);
    apply_activation(this->operation().activation, y, static_cast<std::size_t>(elements));
  }
  /// Whoever wrote y's gradient has multiplied by the derivative already.
  void run_backward(std::int64_t /*row*/, const T* /*y*/, const T* y_gradient, T* x_gradient) override {
    std::copy_n(y_gradient, this->tensor().elements(), x_gradient);
  }
};

template <typename T>
class SoftmaxKernel final : public Elementwise<T> {
 public:
  using Elementwise<T>::Elementwise;

 protected:
  void run_forward(std::int64_t /*row*/, const StepContext& /*context*/, const T* x, T* y) override {
    const std::int64_t channels = this->tensor().channels;
    for (std::int64_t at = 0; at < this->tensor().elements(); at += channels) {
      float largest = x[at];
      for (std::int64_t c = 1; c < channels; ++c) largest = std::max(largest, static_cast<float>(x[at + c]));
      float sum = 0;
      for (std::int64_t c = 0; c < channels; ++c) sum += std::exp(static_cast<float>(x[at + c]) - largest);
      for (std::int64_t c = 0; c < channels; ++c) y[at + c] = std::exp(static_cast<float>(x[at + c]) - largest) / sum;
    }
  }
  void run_backward(std::int64_t /*row*/, const T* y, const T* y_gradient, T* x_gradient) override {
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

/// The mask is a hash of what an element is, not of who computes it; forward notes it for backward.
template <typename T>
class DropoutKernel final : public Elementwise<T> {
 public:
  explicit DropoutKernel(const KernelScope& scope)
      : Elementwise<T>(scope),
        rate_(static_cast<float>(std::get<Dropout>(scope.layer().layer).rate)),
        layer_(static_cast<std::uint32_t>(scope.operation.layer)),
        kept_(scope.notes(scope.operation.output)) {}

 protected:
  void run_forward(std::int64_t row, const StepContext& context, const T* x, T* y) override {
    const TensorSpec& tensor = this->tensor();
    const std::int64_t elements = tensor.elements();
    if (!context.training) {
      std::copy_n(x, elements, y);
      return;
    }
    std::uint8_t* kept = kept_ + row * elements;
    const auto place =
        static_cast<std::uint32_t>(context.first_place + this->first_row() + static_cast<std::size_t>(row));
    const DropoutMask mask(context.seed, context.step, layer_, rate_);
    if (!has_whole_quads(tensor)) {
      for (std::int64_t i = 0; i < elements; ++i) {
        const std::int64_t at = tensor.place_of(i);
        kept[at] = mask.keep(place, static_cast<std::uint32_t>(tensor.place_in_whole(i))) ? 1 : 0;
        y[at] = kept[at] != 0 ? static_cast<float>(x[at]) * mask.scale() : 0.0F;
      }
      return;
    }
    for (std::int64_t group = 0; group < elements; group += 4) {
      const auto keep = mask.keep_four(place, static_cast<std::uint32_t>(tensor.place_in_whole(group) / 4));
      for (std::int64_t i = group; i < std::min(group + 4, elements); ++i) {
        const std::int64_t at = tensor.place_of(i);
        kept[at] = keep[i - group] ? 1 : 0;
        y[at] = keep[i - group] ? static_cast<float>(x[at]) * mask.scale() : 0.0F;
      }
    }
  }
  void run_backward(std::int64_t row, const T* /*y*/, const T* y_gradient, T* x_gradient) override {
    const std::int64_t elements = this->tensor().elements();
    const std::uint8_t* kept = kept_ + row * elements;
    const float scale = 1.0F / (1.0F - rate_);
    for (std::int64_t i = 0; i < elements; ++i) {
      x_gradient[i] = kept[i] != 0 ? static_cast<float>(y_gradient[i]) * scale : 0.0F;
    }
  }

 private:
  /// Four neighbours of this tensor, from a multiple of four on, are four neighbours of the whole one as well.
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

std::unique_ptr<Kernel> make_elementwise(const KernelScope& scope) {
  switch (scope.operation.kind) {
    case OperationKind::dropout:
    case OperationKind::dropout_backward: return make_of<DropoutKernel>(scope);
    case OperationKind::softmax:
    case OperationKind::softmax_backward: return make_of<SoftmaxKernel>(scope);
    default: return make_of<ActivationKernel>(scope);
  }
}

}  // namespace lockstep
