// Adds up the gradients of the calls of one layer.
#include "backend/cuda/kernel.hpp"
#include "backend/cuda/launch.cuh"
#include "core/host_device.hpp"
#include "graph/gradient_ranges.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cuda {
namespace {

struct AddWeighted {
  const float* from;
  float* to;
  float weight;
  bool is_first;
  LOCKSTEP_HOST_DEVICE void operator()(Index i) const { to[i] = (is_first ? 0.0F : to[i]) + weight * from[i]; }
};

class SharedLayerKernel final : public Kernel {
 public:
  SharedLayerKernel(const KernelScope& scope, std::unique_ptr<Kernel> kernel)
      : stream_(scope.cuda_context.stream()), kernel_(std::move(kernel)), is_backward_(scope.is_backward()) {
    for (const auto& [parameter, weight] : shared_terms(scope.graph, scope.operation)) {
      const ParameterSpec& spec = scope.graph.parameters[parameter];
      addends_.push_back({spec.storage,
                          {scope.weights_gradient(parameter), scope.arenas.of(spec).gradients.data() + spec.offset,
                           weight, scope.operation.shared.index == 0}});
    }
  }

  void enqueue(const StepContext& context) override {
    kernel_->enqueue(context);
    if (!is_backward_ && !context.training) return;
    for (const auto& [count, addend] : addends_) for_each(stream_, count, addend);
  }

  [[nodiscard]] std::string implementation() const override { return kernel_->implementation(); }

 private:
  cudaStream_t stream_;
  std::unique_ptr<Kernel> kernel_;
  bool is_backward_;
  std::vector<std::pair<std::size_t, AddWeighted>> addends_;
};

}  // namespace

std::unique_ptr<Kernel> make_shared_layer(const KernelScope& scope,
                                          std::unique_ptr<Kernel> (*make)(const KernelScope&)) {
  return std::make_unique<SharedLayerKernel>(scope, make(scope));
}

}  // namespace lockstep::cuda
