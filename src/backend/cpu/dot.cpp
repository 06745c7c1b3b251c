// Dot: products of two tensors, summed along an axis of each. An example of an operand is a matrix with a row for each
// place on its other axes; the output has an element for each pair of rows.
#include "backend/cpu/activation.hpp"
#include "backend/cpu/kernel.hpp"
#include "core/vector_width.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

/// sum[i, :] += factors[i, k] addends[k, :] for each k in order, where the rows of `addends` have `width` elements.
void add_products(const float* factors, std::int64_t rows, std::int64_t terms, const float* addends, std::int64_t width,
                  float* sum) {
  run_vectorized([=] {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t k = 0; k < terms; ++k) {
        const float factor = factors[i * terms + k];
        for (std::int64_t j = 0; j < width; ++j) sum[i * width + j] += factor * addends[k * width + j];
      }
    }
  });
}

void transpose_matrix(const std::vector<float>& from, std::int64_t rows, std::vector<float>& to) {
  const std::int64_t columns = static_cast<std::int64_t>(from.size()) / rows;
  to.resize(from.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < columns; ++k) to[k * rows + i] = from[i * columns + k];
  }
}

template <typename T>
class DotKernel final : public Kernel {
 public:
  explicit DotKernel(const KernelScope& scope)
      : is_backward_(scope.is_backward()),
        normalizes_(std::get<Dot>(scope.layer().layer).normalize),
        num_examples_(static_cast<std::int64_t>(scope.num_examples)),
        threads_(scope.threads),
        terms_(scope.operation.operands.front().summed.terms),
        y_elements_(scope.output().elements()),
        y_(scope.value<T>(scope.operation.output)),
        y_gradient_(scope.gradient<T>(scope.operation.output)),
        scratch_(static_cast<std::size_t>(scope.threads)) {
    for (std::size_t k = 0; k < sides_.size(); ++k) {
      const Operand& operand = scope.operation.operands[k];
      const std::int64_t elements = scope.graph.tensors[operand.tensor].elements();
      sides_[k] = {.x = scope.value<T>(operand.tensor),
                   .x_gradient = operand.needs_gradient ? scope.gradient<T>(operand.tensor) : nullptr,
                   .elements = elements,
                   .rows = elements / terms_,
                   .stride = operand.summed.stride,
                   .activation = operand.activation};
    }
  }

  void run(const StepContext& /*context*/) override {
#pragma omp parallel for num_threads(threads_) if (threads_ > 1)
    for (std::int64_t example = 0; example < num_examples_; ++example) {
      Scratch& scratch = scratch_[static_cast<std::size_t>(omp_get_thread_num())];
      for (std::size_t k = 0; k < sides_.size(); ++k) read(sides_[k], example, scratch.matrices[k]);
      if (is_backward_) {
        run_backward(example, scratch);
      } else {
        run_forward(example, scratch);
      }
    }
  }

 private:
  struct Side {
    const T* x = nullptr;
    T* x_gradient = nullptr;  ///< null if nothing needs it
    std::int64_t elements = 0;
    std::int64_t rows = 0;
    std::int64_t stride = 1;                                     ///< between the elements of a row
    ActivationFunction activation = ActivationFunction::linear;  ///< fused into x
  };

  /// An operand's example: its rows, normalized if the layer does that, and what they were multiplied by.
  struct Matrix {
    std::vector<float> rows;
    std::vector<float> scales;
  };

  struct Scratch {
    std::array<Matrix, 2> matrices;
    std::vector<float> output;
    std::vector<float> transposed;
    std::vector<float> gradient;
  };

  static constexpr float max_scale = 1e7F;  ///< 1 / keras.config.epsilon()

  /// Where row i of an example begins.
  static std::int64_t offset_of_row(const Side& side, std::int64_t terms, std::int64_t i) {
    return i / side.stride * side.stride * terms + i % side.stride;
  }

  void read(const Side& side, std::int64_t example, Matrix& matrix) const {
    matrix.rows.resize(static_cast<std::size_t>(side.elements));
    matrix.scales.assign(static_cast<std::size_t>(side.rows), 1.0F);
    const T* const x = side.x + example * side.elements;
    for (std::int64_t i = 0; i < side.rows; ++i) {
      float* const row = matrix.rows.data() + i * terms_;
      const T* const from = x + offset_of_row(side, terms_, i);
      double squares = 0;
      for (std::int64_t k = 0; k < terms_; ++k) {
        row[k] = static_cast<float>(from[k * side.stride]);
        squares += static_cast<double>(row[k]) * row[k];
      }
      if (!normalizes_) continue;
      const float scale = std::min(static_cast<float>(1 / std::sqrt(squares)), max_scale);
      matrix.scales[static_cast<std::size_t>(i)] = scale;
      for (std::int64_t k = 0; k < terms_; ++k) row[k] *= scale;
    }
  }

  void run_forward(std::int64_t example, Scratch& scratch) const {
    transpose_matrix(scratch.matrices[1].rows, sides_[1].rows, scratch.transposed);
    scratch.output.assign(static_cast<std::size_t>(y_elements_), 0.0F);
    add_products(scratch.matrices[0].rows.data(), sides_[0].rows, terms_, scratch.transposed.data(), sides_[1].rows,
                 scratch.output.data());
    std::copy_n(scratch.output.data(), y_elements_, y_ + example * y_elements_);
  }

  void run_backward(std::int64_t example, Scratch& scratch) const {
    scratch.output.assign(y_gradient_ + example * y_elements_, y_gradient_ + (example + 1) * y_elements_);
    transpose_matrix(scratch.output, sides_[0].rows, scratch.transposed);
    for (std::size_t k = 0; k < sides_.size(); ++k) {
      const Side& side = sides_[k];
      if (side.x_gradient == nullptr) continue;
      scratch.gradient.assign(static_cast<std::size_t>(side.elements), 0.0F);
      add_products((k == 0 ? scratch.output : scratch.transposed).data(), side.rows, sides_[1 - k].rows,
                   scratch.matrices[1 - k].rows.data(), terms_, scratch.gradient.data());
      write_gradient(side, example, scratch.matrices[k], scratch.gradient);
    }
  }

  void write_gradient(const Side& side, std::int64_t example, const Matrix& matrix,
                      std::vector<float>& gradient) const {
    T* const x_gradient = side.x_gradient + example * side.elements;
    for (std::int64_t i = 0; i < side.rows; ++i) {
      float* const of_row = gradient.data() + i * terms_;
      if (normalizes_) {
        through_normalization(matrix.rows.data() + i * terms_, matrix.scales[static_cast<std::size_t>(i)], of_row);
      }
      T* const to = x_gradient + offset_of_row(side, terms_, i);
      for (std::int64_t k = 0; k < terms_; ++k) to[k * side.stride] = of_row[k];
    }
    apply_derivative(side.activation, side.x + example * side.elements, x_gradient,
                     static_cast<std::size_t>(side.elements));
  }

  /// Makes the gradient of a normalized row that of the row before. A row of zeros has the gradient 0.
  void through_normalization(const float* normalized, float scale, float* gradient) const {
    double dot = 0;
    double squares = 0;
    for (std::int64_t k = 0; k < terms_; ++k) {
      dot += static_cast<double>(normalized[k]) * gradient[k];
      squares += static_cast<double>(normalized[k]) * normalized[k];
    }
    const float along = scale < max_scale ? static_cast<float>(dot) : 0.0F;  // else the scale is a constant
    const float factor = squares > 0 ? scale : 0.0F;
    for (std::int64_t k = 0; k < terms_; ++k) gradient[k] = factor * (gradient[k] - normalized[k] * along);
  }

  bool is_backward_;
  bool normalizes_;
  std::int64_t num_examples_;
  int threads_;
  std::int64_t terms_;
  std::int64_t y_elements_;
  T* y_;
  const T* y_gradient_;
  std::array<Side, 2> sides_;
  std::vector<Scratch> scratch_;  ///< by thread
};

}  // namespace

std::unique_ptr<Kernel> make_dot(const KernelScope& scope) {
  return with_type(scope.output(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<DotKernel<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep
