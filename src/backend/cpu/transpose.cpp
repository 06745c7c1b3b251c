// Reorders the axes of each example, channels last.
#include "backend/cpu/example_kernel.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

template <typename T>
class TransposeKernel final : public ExampleKernel<T> {
 public:
  explicit TransposeKernel(const KernelScope& scope) : ExampleKernel<T>(scope) {
    const Shape& shape = scope.layer().input_shape;
    std::vector<std::int64_t> strides(shape.rank(), 1);
    for (std::size_t axis = shape.rank(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
    source_.push_back(0);
    for (const int dim : std::get<Permute>(scope.layer().layer).dims) {
      const auto axis = static_cast<std::size_t>(dim - 1);
      std::vector<std::int32_t> longer;
      for (const std::int32_t offset : source_) {
        for (std::int64_t i = 0; i < shape[axis]; ++i) {
          longer.push_back(offset + static_cast<std::int32_t>(i * strides[axis]));
        }
      }
      source_ = std::move(longer);
    }
  }

 protected:
  void run_forward(std::int64_t /*example*/, const StepContext& /*context*/, const T* x, T* y) override {
    for (std::size_t i = 0; i < source_.size(); ++i) y[i] = x[source_[i]];
  }
  void run_backward(std::int64_t /*example*/, const StepContext& /*context*/,
                    const typename ExampleKernel<T>::Backward& at) override {
    for (std::size_t i = 0; i < source_.size(); ++i) at.x_gradient[source_[i]] = at.y_gradient[i];
  }

 private:
  std::vector<std::int32_t> source_;  ///< by element of the output: its place in the input
};

}  // namespace

std::unique_ptr<Kernel> make_transpose(const KernelScope& scope) { return make_for_type<TransposeKernel>(scope); }

}  // namespace lockstep
