// Adds up the gradients of the calls of one layer.
#include "backend/cpu/kernel.hpp"
#include "graph/gradient_ranges.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

class SharedLayerKernel final : public Kernel {
 public:
  SharedLayerKernel(const KernelScope& scope, std::unique_ptr<Kernel> kernel)
      : kernel_(std::move(kernel)), is_first_(scope.operation.shared.index == 0), is_backward_(scope.is_backward()) {
    for (const auto& [parameter, scale] : shared_terms(scope.graph, scope.operation)) {
      const ParameterSpec& spec = scope.graph.parameters[parameter];
      addends_.push_back({scope.weights_gradient(parameter), scope.arenas.of(spec).gradients.data() + spec.offset,
                          spec.storage, scale});
    }
  }

  void run(const StepContext& context) override {
    kernel_->run(context);
    if (!is_backward_ && !context.training) return;
    for (const auto& [from, to, count, scale] : addends_) {
      for (std::size_t i = 0; i < count; ++i) to[i] = (is_first_ ? 0.0F : to[i]) + scale * from[i];
    }
  }

  [[nodiscard]] std::string implementation() const override { return kernel_->implementation(); }

 private:
  struct Addend {
    const float* from;
    float* to;
    std::size_t count;
    float scale;
  };

  std::unique_ptr<Kernel> kernel_;
  bool is_first_;
  bool is_backward_;
  std::vector<Addend> addends_;
};

}  // namespace

std::unique_ptr<Kernel> make_shared_layer(const KernelScope& scope,
                                          std::unique_ptr<Kernel> (*make)(const KernelScope&)) {
  return std::make_unique<SharedLayerKernel>(scope, make(scope));
}

}  // namespace lockstep
