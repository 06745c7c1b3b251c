// Losses with their gradients and metric sums. One block walks all rows, so that the sums have a fixed order.
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/losses.hpp"

#include <memory>

namespace lockstep::cuda {

namespace {

constexpr unsigned loss_threads = 256;

__global__ void run_loss(const __grid_constant__ LossRow body, Index rows, float* metrics) {
  double loss = 0;
  double correct = 0;
  for (Index row = threadIdx.x; row < rows; row += blockDim.x) {
    const RowResult result = body(row);
    loss += result.loss;
    correct += result.correct;
  }
  __shared__ double losses[loss_threads];
  __shared__ double corrects[loss_threads];
  losses[threadIdx.x] = loss;
  corrects[threadIdx.x] = correct;
  __syncthreads();
  for (unsigned half = loss_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      losses[threadIdx.x] += losses[threadIdx.x + half];
      corrects[threadIdx.x] += corrects[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  metrics[metric_loss] = static_cast<float>(losses[0]);
  metrics[metric_correct] = static_cast<float>(corrects[0]);
  metrics[metric_count] = static_cast<float>(rows);
  const Request request = body.arguments->request;
  metrics[metric_leave] = request == Request::leave ? 1.0F : 0.0F;
  metrics[metric_leave_with_backup] = request == Request::leave_with_backup ? 1.0F : 0.0F;
}

class LossKernel final : public Kernel {
 public:
  explicit LossKernel(const KernelScope& scope)
      : stream_(scope.tools.stream()),
        rows_(static_cast<Index>(scope.rows)),
        gradient_(scope.operation.input_gradient ? scope.gradient<float>(scope.operation.input) : nullptr),
        metrics_(scope.weights_gradient(scope.operation.parameter)),
        body_{.arguments = scope.arguments,
              .kind = LossKind::mean_squared_error,
              .from_logits = false,
              .outputs = scope.value<float>(scope.operation.input),
              .gradients = nullptr,
              .count = static_cast<Index>(scope.input().elements()),
              .function = scope.operation.input_activation} {
    if (const auto* sparse = std::get_if<SparseCategoricalCrossentropy>(&scope.graph.loss)) {
      body_.kind = LossKind::sparse_crossentropy;
      body_.from_logits = sparse->from_logits;
    } else if (const auto* categorical = std::get_if<CategoricalCrossentropy>(&scope.graph.loss)) {
      body_.kind = LossKind::categorical_crossentropy;
      body_.from_logits = categorical->from_logits;
    }
  }

  void enqueue(const StepContext& context) override {
    LossRow body = body_;
    if (context.training) body.gradients = gradient_;
    launch(stream_, 1, loss_threads, run_loss, body, rows_, metrics_);
  }

 private:
  cudaStream_t stream_;
  Index rows_;
  float* gradient_;
  float* metrics_;
  LossRow body_;
};

}  // namespace

std::unique_ptr<Kernel> make_loss(const KernelScope& scope) { return std::make_unique<LossKernel>(scope); }

}  // namespace lockstep::cuda
