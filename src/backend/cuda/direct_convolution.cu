// Slow direct convolution, for convolutions without a cuDNN algorithm. One thread block per element of the kernel sums
// its gradient over all pixels in a fixed order.
#include "backend/cuda/direct_convolution_functors.hpp"

#include "backend/cuda/kernel_launchers.hpp"
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/launch.cuh"

#include <memory>

namespace lockstep::cuda {

namespace {

constexpr unsigned sum_threads = 256;

template <typename Term>
__global__ void sum_terms(const __grid_constant__ Term term, Index pixels, float* sums) {
  double sum = 0;
  for (Index pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) sum += term(blockIdx.x, pixel);
  __shared__ double parts[sum_threads];
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = sum_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = static_cast<float>(parts[0]);
}

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

template <typename T>
const T* kernel_of(const KernelScope& scope) {
  const int parameter = scope.operation.parameter;
  if constexpr (std::is_same_v<T, float>) {
    return scope.weights(parameter);
  } else {
    return reinterpret_cast<const T*>(scope.low_precision(parameter));
  }
}

template <typename T, typename To>
class DirectForwardKernel final : public Kernel {
 public:
  explicit DirectForwardKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        count_(scope.count(scope.output())),
        functor_{shape_of(scope),
              scope.value<T>(scope.operation.input),
              kernel_of<T>(scope),
              scope.has_bias() ? scope.weights(scope.operation.parameter + 1) : nullptr,
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
class DirectBackwardKernel final : public Kernel {
 public:
  explicit DirectBackwardKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        scratch_(scope.reduction_scratch),
        pixels_(scope.num_examples * static_cast<std::size_t>(scope.output().height * scope.output().width)),
        filters_(static_cast<std::size_t>(scope.output().channels)),
        x_count_(scope.count(scope.input())),
        kernel_count_(scope.graph.parameters[scope.operation.parameter].storage),
        kernel_gradient_(scope.operation.is_frozen ? nullptr : scope.weights_gradient(scope.operation.parameter)),
        bias_gradient_(kernel_gradient_ != nullptr && scope.has_bias() ? scope.weights_gradient(scope.operation.parameter + 1) : nullptr),
        input_gradient_(scope.operation.input_gradient),
        y_gradient_(scope.gradient<T>(scope.operation.output)) {
    if (scope.output().type != scope.input().type) {
      convert_from_ = y_gradient_;
      converted_ = DeviceBuffer(pixels_ * filters_ * sizeof(T));
      y_gradient_ = converted_.template as<T>();
    }
    const ConvolutionShape shape = shape_of(scope);
    const T* x = scope.value<T>(scope.operation.input);
    weights_ = {shape, x, y_gradient_};
    data_ = {shape,
             x,
             kernel_of<T>(scope),
             y_gradient_,
             scope.gradient<T>(scope.operation.input),
             scope.operation.input_activation};
  }

  void enqueue(const StepContext& /*context*/) override {
    constexpr ElementType type = std::is_same_v<T, float> ? ElementType::float32 : ElementType::bfloat16;
    if (convert_from_ != nullptr) {
      add_bias_activation(stream_, ElementType::float32, convert_from_, type, y_gradient_, nullptr, pixels_ * filters_, filters_,
             ActivationFunction::linear);
    }
    if (bias_gradient_ != nullptr) reduce_bias_gradient(stream_, type, y_gradient_, pixels_, filters_, scratch_, bias_gradient_);
    if (kernel_gradient_ != nullptr) {
      launch(stream_, static_cast<unsigned>(kernel_count_), sum_threads, sum_terms<DirectWeightsTerm<T>>, weights_,
             static_cast<Index>(pixels_), kernel_gradient_);
    }
    if (input_gradient_) for_each(stream_, x_count_, data_);
  }
  [[nodiscard]] std::string implementation() const override { return "own:direct"; }

 private:
  cudaStream_t stream_;
  std::byte* scratch_;
  std::size_t pixels_, filters_, x_count_, kernel_count_;
  float* kernel_gradient_;  ///< null if the layer is frozen
  float* bias_gradient_;
  bool input_gradient_;
  T* y_gradient_;
  const void* convert_from_ = nullptr;
  DeviceBuffer converted_;
  DirectWeightsTerm<T> weights_{};
  DirectData<T> data_{};
};

}  // namespace

std::unique_ptr<Kernel> make_direct_convolution(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto from) -> std::unique_ptr<Kernel> {
    return with_type(scope.output(), [&](auto to) -> std::unique_ptr<Kernel> {
      return std::make_unique<DirectForwardKernel<decltype(from), decltype(to)>>(scope);
    });
  });
}

std::unique_ptr<Kernel> make_direct_convolution_backward(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    return std::make_unique<DirectBackwardKernel<decltype(zero)>>(scope);
  });
}

}  // namespace lockstep::cuda
