// A kernel is an operation bound to device buffers for slices of one size; and the factories that make them. One file
// each. What `enqueue` puts on the compute stream may be recorded, so it allocates nothing and waits for nothing; what
// changes from step to step it leaves to the step's arguments in device memory.
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/step_arguments.hpp"
#include "backend/cuda/tools.hpp"
#include "core/bfloat16.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::cuda {

class Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  virtual void enqueue(const StepContext& context) = 0;

  /// What computes it: the library's algorithm, or "own".
  [[nodiscard]] virtual std::string implementation() const { return "own"; }
};

/// A tensor's memory for the largest slice.
struct TensorBuffers {
  std::byte* value = nullptr;
  std::byte* gradient = nullptr;
  std::byte* notes = nullptr;  ///< what forward leaves for backward: max pooling's winners, statistics
};

/// What a kernel is made from. Everything outlives the kernel.
struct KernelScope {
  const Graph& graph;
  const Operation& operation;
  std::size_t rows;
  const std::vector<TensorBuffers>& buffers;
  const Arenas& arenas;
  const StepArguments* arguments;  ///< on the device
  std::byte* sum_scratch;          ///< for one sum over channels at a time
  const Tools& tools;

  [[nodiscard]] const TensorSpec& input() const { return graph.tensors[operation.input]; }
  [[nodiscard]] const TensorSpec& output() const { return graph.tensors[operation.output]; }
  [[nodiscard]] const LayerInfo& layer() const { return graph.layers[operation.layer]; }
  [[nodiscard]] std::size_t count(const TensorSpec& tensor) const {
    return rows * static_cast<std::size_t>(tensor.elements());
  }
  [[nodiscard]] bool has_bias() const { return layer().parameters.size() > 1; }
  [[nodiscard]] bool is_backward() const { return operation.kind > OperationKind::loss; }

  template <typename T>
  [[nodiscard]] T* value(int tensor) const {
    return reinterpret_cast<T*>(buffers[tensor].value);
  }
  template <typename T>
  [[nodiscard]] T* gradient(int tensor) const {
    return reinterpret_cast<T*>(buffers[tensor].gradient);
  }
  template <typename T>
  [[nodiscard]] T* notes(int tensor) const {
    return reinterpret_cast<T*>(buffers[tensor].notes);
  }
  [[nodiscard]] float* weights(int parameter) const {
    return arenas.weights.data() + graph.parameters[parameter].offset;
  }
  [[nodiscard]] float* weights_gradient(int parameter) const {
    return arenas.gradients.data() + graph.parameters[parameter].offset;
  }
  [[nodiscard]] std::uint16_t* low_precision(int parameter) const {
    return arenas.low_precision.data() + graph.parameters[parameter].offset;
  }
};

[[nodiscard]] inline std::size_t size_of(ElementType type) {
  return type == ElementType::bfloat16 ? sizeof(BFloat16) : sizeof(float);
}

/// Calls `function` with a value of the tensor's element type: with_type(spec, [&](auto zero) { using T = ...; }).
template <typename Function>
auto with_type(const TensorSpec& tensor, Function&& function) {
  if (tensor.type == ElementType::bfloat16) return function(BFloat16{});
  return function(float{});
}

[[nodiscard]] std::unique_ptr<Kernel> make_gather(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_convolution(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_convolution_backward(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_direct_convolution(const KernelScope& scope);  // where cuDNN has none
[[nodiscard]] std::unique_ptr<Kernel> make_direct_convolution_backward(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_dense(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_dense_backward(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_pooling(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_batch_normalization(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_elementwise(const KernelScope& scope);  // activation, dropout, softmax
[[nodiscard]] std::unique_ptr<Kernel> make_loss(const KernelScope& scope);

}  // namespace lockstep::cuda
