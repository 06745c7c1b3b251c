// Embedding: rows of the weights, by the indices that the model's input holds as numbers.
#include "backend/cpu/kernel.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

namespace {

template <typename T>
class EmbeddingKernel final : public Kernel {
 public:
  explicit EmbeddingKernel(const KernelScope& scope)
      : is_backward_(scope.is_backward()),
        name_(scope.layer().name),
        rows_(scope.graph.parameters[scope.operation.parameter].info.shape[0]),
        width_(scope.graph.parameters[scope.operation.parameter].info.shape[1]),
        count_(static_cast<std::int64_t>(scope.count(scope.input()))),
        threads_(scope.threads),
        inputs_(scope.value<float>(scope.operation.input)),
        weights_(scope.weights(scope.operation.parameter)),
        y_(scope.value<T>(scope.operation.output)),
        indices_(static_cast<std::size_t>(count_)) {
    if (!is_backward_) return;
    weights_gradient_ = scope.weights_gradient(scope.operation.parameter);
    y_gradient_ = scope.gradient<T>(scope.operation.output);
  }

  void run(const StepContext& /*context*/) override {
    for (std::int64_t i = 0; i < count_; ++i) indices_[static_cast<std::size_t>(i)] = index_of(inputs_[i]);
    if (is_backward_) {
      run_backward();
    } else {
      run_forward();
    }
  }

 private:
  [[nodiscard]] std::int64_t index_of(float value) const {
    const auto index = static_cast<std::int64_t>(value);
    if (!(value >= 0 && value < static_cast<float>(rows_)) || static_cast<float>(index) != value) {
      throw DataError(
          fmt::format("layer '{}' (Embedding) reads the index {}, but its indices are whole numbers from 0 "
                      "to {}; check the inputs, or enlarge input_dim",
                      name_, value, rows_ - 1));
    }
    return index;
  }

  void run_forward() {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t i = 0; i < count_; ++i) {
      std::copy_n(weights_ + indices_[static_cast<std::size_t>(i)] * width_, width_, y_ + i * width_);
    }
  }

  /// Adds the gradients of equal indices in the order of examples. Each thread adds rows of its own.
  void run_backward() {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (int thread = 0; thread < threads_; ++thread) {
      const std::int64_t begin = rows_ * thread / threads_;
      const std::int64_t end = rows_ * (thread + 1) / threads_;
      std::fill(weights_gradient_ + begin * width_, weights_gradient_ + end * width_, 0.0F);
      for (std::int64_t i = 0; i < count_; ++i) {
        const std::int64_t row = indices_[static_cast<std::size_t>(i)];
        if (row < begin || row >= end) continue;
        float* const sum = weights_gradient_ + row * width_;
        for (std::int64_t c = 0; c < width_; ++c) sum[c] += static_cast<float>(y_gradient_[i * width_ + c]);
      }
    }
  }

  bool is_backward_;
  std::string name_;
  std::int64_t rows_;
  std::int64_t width_;
  std::int64_t count_;  ///< indices
  int threads_;
  const float* inputs_;
  const float* weights_;
  float* weights_gradient_ = nullptr;
  T* y_;
  const T* y_gradient_ = nullptr;
  std::vector<std::int64_t> indices_;
};

}  // namespace

std::unique_ptr<Kernel> make_embedding(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<EmbeddingKernel<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
