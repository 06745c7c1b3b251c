// Convolutions of images with one channel: forward with bias and activation, and the gradients of kernel and bias with
// the activation's derivative, each in one pass over the output. The gradients are summed in two stages with a fixed
// order: thread blocks add rows of the output, then a block adds up each weight's partial sums.
#include "backend/cuda/convolution_kernels.hpp"
#include "backend/cuda/one_channel_convolution_functors.hpp"
#include "backend/cuda/term_sum.cuh"

#include <algorithm>
#include <memory>

namespace lockstep::cuda {

namespace {

constexpr unsigned filters_per_block = 32;
constexpr unsigned lines_per_block = 8;
constexpr std::size_t max_segments = 512;

/// Adds the rows of segment blockIdx.y. Block (32, 8): filters, rows.
template <typename Terms>
__global__ void sum_segments(const __grid_constant__ Terms terms, Index rows, Index filters, float* partials) {
  const Index filter = blockIdx.x * filters_per_block + threadIdx.x;
  float sums[Terms::num_sums] = {};
  if (filter < filters) {
    for (Index row = blockIdx.y * lines_per_block + threadIdx.y; row < rows; row += gridDim.y * lines_per_block) {
      terms(row, filter, sums);
    }
  }
  __shared__ float lines[lines_per_block][filters_per_block];
  for (int k = 0; k < Terms::num_sums; ++k) {
    lines[threadIdx.y][threadIdx.x] = sums[k];
    __syncthreads();
    if (threadIdx.y == 0 && filter < filters) {
      float sum = 0;
      for (unsigned line = 0; line < lines_per_block; ++line) sum += lines[line][threadIdx.x];
      partials[(filter * Terms::num_sums + k) * gridDim.y + blockIdx.y] = sum;
    }
    __syncthreads();
  }
}

struct PartialSum {
  const float* partials;
  Index segments;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE float operator()(Index element, Index segment) const {
    return partials[element * segments + segment];
  }
};

template <typename T, typename To, int size>
class OneChannelForwardKernel final : public Kernel {
 public:
  explicit OneChannelForwardKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        functor_{shape_of(scope), scope.value<T>(scope.operation.input),   kernel_of<T>(scope),
                 bias_of(scope),  scope.value<To>(scope.operation.output), scope.operation.activation},
        count_(scope.num_examples * static_cast<std::size_t>(functor_.s.out_height * functor_.s.filters)) {}

  void enqueue(const StepContext& /*context*/) override { for_each(stream_, count_, functor_); }
  [[nodiscard]] std::string implementation() const override { return "own:one channel"; }

 private:
  cudaStream_t stream_;
  OneChannelForward<T, To, size> functor_;
  std::size_t count_;
};

template <typename T, int size>
class OneChannelWeightsGradientKernel final : public Kernel {
 public:
  using Terms = OneChannelWeightsTerms<T, size>;

  explicit OneChannelWeightsGradientKernel(const KernelScope& scope)
      : stream_(scope.cuda_context.stream()),
        terms_{shape_of(scope), scope.value<T>(scope.operation.input), scope.value<T>(scope.operation.output),
               static_cast<const T*>(scope.output_gradient()),
               scope.operation.derives_activation ? scope.operation.activation : ActivationFunction::linear},
        rows_(scope.num_examples * static_cast<std::size_t>(terms_.s.out_height)),
        filters_(static_cast<unsigned>(terms_.s.filters)),
        segments_(static_cast<unsigned>(std::clamp<std::size_t>(rows_ / lines_per_block, 1, max_segments))),
        partials_(std::size_t{segments_} * filters_ * Terms::num_sums * sizeof(float)),
        store_{Terms::taps, scope.weights_gradient(scope.operation.parameter), bias_gradient_of(scope)} {}

  void enqueue(const StepContext& /*context*/) override {
    const dim3 blocks((filters_ + filters_per_block - 1) / filters_per_block, segments_);
    launch(stream_, blocks, dim3(filters_per_block, lines_per_block), sum_segments<Terms>, terms_,
           static_cast<Index>(rows_), static_cast<Index>(filters_), partials_.template as<float>());
    launch(stream_, filters_ * Terms::num_sums, sum_threads, sum_terms<PartialSum, StoreOneChannelSum>,
           PartialSum{partials_.template as<float>(), segments_}, static_cast<Index>(segments_), store_);
  }
  [[nodiscard]] std::string implementation() const override { return "own:one channel"; }

 private:
  cudaStream_t stream_;
  Terms terms_;
  std::size_t rows_;
  unsigned filters_;
  unsigned segments_;
  DeviceBuffer partials_;
  StoreOneChannelSum store_;
};

}  // namespace

bool is_one_channel(const KernelScope& scope) {
  const auto& [rows, columns] = scope.operation.windows;
  return scope.input().channels == 1 && rows.kernel == columns.kernel && (rows.kernel == 3 || rows.kernel == 5);
}

std::unique_ptr<Kernel> make_one_channel_convolution(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto from) {
    return with_type(scope.output(), [&](auto to) -> std::unique_ptr<Kernel> {
      using T = decltype(from);
      using To = decltype(to);
      if (scope.operation.windows.rows.kernel == 3) return std::make_unique<OneChannelForwardKernel<T, To, 3>>(scope);
      return std::make_unique<OneChannelForwardKernel<T, To, 5>>(scope);
    });
  });
}

std::unique_ptr<Kernel> make_one_channel_weights_gradient(const KernelScope& scope) {
  return with_type(scope.input(), [&](auto zero) -> std::unique_ptr<Kernel> {
    using T = decltype(zero);
    if (scope.operation.windows.rows.kernel == 3) return std::make_unique<OneChannelWeightsGradientKernel<T, 3>>(scope);
    return std::make_unique<OneChannelWeightsGradientKernel<T, 5>>(scope);
  });
}

}  // namespace lockstep::cuda
