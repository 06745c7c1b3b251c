// Direct convolution, for convolutions without a cuDNN algorithm and small ones. One thread block per element of the kernel sums
// its gradient over all pixels in a fixed order.
#include "backend/cuda/convolution_kernels.hpp"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/product_backward.hpp"
#include "backend/cuda/term_sum.cuh"

#include <memory>

namespace lockstep::cuda {

namespace {

struct StoreSum {
  float* sums;

  LOCKSTEP_HOST_DEVICE void operator()(Index element, double sum) const { sums[element] = static_cast<float>(sum); }
};

template <typename T, typename To>
class DirectForwardKernel final : public Kernel {
 public:
  explicit DirectForwardKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        count_(scope.count(scope.output())),
        functor_{shape_of(scope),
              scope.value<T>(scope.operation.input),
              kernel_of<T>(scope),
              bias_of(scope),
              scope.value<To>(scope.operation.output),
              scope.operation.activation} {}

  void enqueue(const StepContext& /*context*/) override { for_each(stream_, count_, functor_); }
  [[nodiscard]] std::string implementation() const override { return "own:direct"; }

 private:
  cudaStream_t stream_;
  std::size_t count_;
  DirectForward<T, To> functor_;
};

template <typename T>
class DirectWeightsGradientKernel final : public Kernel {
 public:
  explicit DirectWeightsGradientKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        pixels_(scope.num_examples * static_cast<std::size_t>(scope.output().height * scope.output().width)),
        kernel_count_(scope.graph.parameters[scope.operation.parameter].storage),
        kernel_gradient_{scope.weights_gradient(scope.operation.parameter)},
        bias_gradient_(scope, bias_gradient_of(scope)),
        term_{shape_of(scope), scope.value<T>(scope.operation.input), static_cast<const T*>(scope.output_gradient())} {}

  void enqueue(const StepContext& /*context*/) override {
    bias_gradient_.enqueue();
    launch(stream_, static_cast<unsigned>(kernel_count_), sum_threads, sum_terms<DirectWeightsTerm<T>, StoreSum>,
           term_, static_cast<Index>(pixels_), kernel_gradient_);
  }
  [[nodiscard]] std::string implementation() const override { return "own:direct"; }

 private:
  cudaStream_t stream_;
  std::size_t pixels_, kernel_count_;
  StoreSum kernel_gradient_;
  BiasGradient bias_gradient_;
  DirectWeightsTerm<T> term_;
};

template <typename T>
class DirectInputGradientKernel final : public Kernel {
 public:
  explicit DirectInputGradientKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        count_(scope.count(scope.input())),
        functor_{shape_of(scope),
                 scope.value<T>(scope.operation.input),
                 kernel_of<T>(scope),
                 static_cast<const T*>(scope.output_gradient()),
                 scope.gradient<T>(scope.operation.input),
                 scope.operation.input_activation} {}

  void enqueue(const StepContext& /*context*/) override { for_each(stream_, count_, functor_); }
  [[nodiscard]] std::string implementation() const override { return "own:direct"; }

 private:
  cudaStream_t stream_;
  std::size_t count_;
  DirectData<T> functor_;
};

}  // namespace

ConvolutionShape shape_of(const KernelScope& scope) {
  const auto& [rows, columns] = scope.operation.windows;
  const TensorSpec& x = scope.input();
  const TensorSpec& y = scope.output();
  return {static_cast<int>(x.height),
          static_cast<int>(x.width),
          static_cast<int>(x.channels),
          static_cast<int>(y.height),
          static_cast<int>(y.width),
          static_cast<int>(y.channels),
          static_cast<int>(rows.kernel),
          static_cast<int>(columns.kernel),
          static_cast<int>(rows.stride),
          static_cast<int>(columns.stride),
          static_cast<int>(rows.dilation),
          static_cast<int>(columns.dilation),
          static_cast<int>(rows.pad_before()),
          static_cast<int>(columns.pad_before())};
}

std::unique_ptr<Kernel> make_direct_convolution(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto from) -> std::unique_ptr<Kernel> {
    return with_type(scope.output(), [&](auto to) -> std::unique_ptr<Kernel> {
      return std::make_unique<DirectForwardKernel<decltype(from), decltype(to)>>(scope);
    });
  });
}

std::unique_ptr<Kernel> make_direct_weights_gradient(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<DirectWeightsGradientKernel<decltype(zero)>>(scope);
  });
}

std::unique_ptr<Kernel> make_direct_input_gradient(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<DirectInputGradientKernel<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep::cuda
