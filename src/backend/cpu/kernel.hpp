// A kernel is an operation bound to buffers for slices of one size; and the factories that make them. One file each.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"
#include "core/bfloat16.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep {

class Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  virtual void run(const StepContext& context) = 0;

  /// What computes it: oneDNN's name of its implementation, or "loop".
  [[nodiscard]] virtual std::string implementation() const { return "loop"; }
};

/// A tensor's memory for the largest slice. A tensor nobody differentiates has no gradient.
struct TensorBuffers {
  std::byte* value = nullptr;
  std::byte* gradient = nullptr;
  std::byte* notes =
      nullptr;  ///< what forward leaves for backward: a byte an element (max pooling, Dropout), or statistics
};

/// True if the tensor's gradient takes the place of its value: when the Dense that reads it last has used a chunk of
/// it, nobody needs that chunk any more. It spares the caches a tensor, often the model's largest.
[[nodiscard]] bool gradient_in_place(const Graph& graph, int tensor);

/// What a kernel is made from. Everything outlives the kernel.
struct KernelScope {
  const Graph& graph;
  const Operation& operation;
  std::size_t first_row;  ///< of the rank's examples
  std::size_t rows;
  const std::vector<TensorBuffers>& buffers;
  const Arenas& arenas;
  std::byte* scratch;  ///< for one kernel's run at a time: an input gradient's chunk (see DenseBackward)
  const std::vector<dnnl::memory::desc>& masters;  ///< how each convolution's kernel lies in the arenas
  const onednn::Context& dnnl;
  int threads;

  [[nodiscard]] const TensorSpec& input() const { return graph.tensors[operation.input]; }
  [[nodiscard]] const TensorSpec& output() const { return graph.tensors[operation.output]; }
  [[nodiscard]] const LayerInfo& layer() const { return graph.layers[operation.layer]; }

  /// A tensor from this kernel's first row on.
  template <typename T>
  [[nodiscard]] T* value(int tensor) const {
    return reinterpret_cast<T*>(buffers[tensor].value + offset(tensor));
  }
  template <typename T>
  [[nodiscard]] T* gradient(int tensor) const {
    std::byte* gradient = buffers[tensor].gradient;
    return gradient == nullptr ? nullptr : reinterpret_cast<T*>(gradient + offset(tensor));
  }
  /// Notes of a byte an element, from the first row on.
  [[nodiscard]] std::uint8_t* notes(int tensor) const {
    std::byte* notes = buffers[tensor].notes;
    const std::size_t at = first_row * static_cast<std::size_t>(graph.tensors[tensor].elements());
    return notes == nullptr ? nullptr : reinterpret_cast<std::uint8_t*>(notes + at);
  }
  [[nodiscard]] std::size_t offset(int tensor) const {
    const TensorSpec& spec = graph.tensors[tensor];
    if (spec.passing_rows > 0) return 0;
    const std::size_t size = spec.type == ElementType::bfloat16 ? sizeof(BFloat16) : sizeof(float);
    return first_row * static_cast<std::size_t>(spec.elements()) * size;
  }
  [[nodiscard]] float* weights(int parameter) const {
    const ParameterSpec& spec = graph.parameters[parameter];
    return arenas.of(spec).weights.data() + spec.offset;
  }
  [[nodiscard]] float* weights_gradient(int parameter) const {
    const ParameterSpec& spec = graph.parameters[parameter];
    return arenas.of(spec).gradients.data() + spec.offset;
  }
  [[nodiscard]] const dnnl::memory::desc& master() const { return masters[operation.parameter]; }
  [[nodiscard]] std::uint16_t* low_precision(int parameter) const {
    const ParameterSpec& spec = graph.parameters[parameter];
    return arenas.of(spec).low_precision.data() + spec.offset;
  }
};

/// Calls `function` with a value of the tensor's element type: with_type(spec, [&](auto zero) { using T = ...; }).
template <typename Function>
auto with_type(const TensorSpec& tensor, Function&& function) {
  if (tensor.type == ElementType::bfloat16) return function(BFloat16{});
  return function(float{});
}

[[nodiscard]] std::unique_ptr<Kernel> make_gather(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_convolution(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_convolution_backward(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_dense(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_dense_backward(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_max_pooling(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_average_pooling(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_batch_normalization(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_elementwise(const KernelScope& scope);  // activation, dropout, softmax
[[nodiscard]] std::unique_ptr<Kernel> make_loss(const KernelScope& scope);
[[nodiscard]] std::unique_ptr<Kernel> make_exchange(const KernelScope& scope);  // around a sum over ranks
[[nodiscard]] std::unique_ptr<Kernel> make_blocks(const KernelScope& scope);    // around an exchange between ranks

/// For an operation on a tensor of which this rank holds nothing: its part of a sum is zero. Null where it has none.
[[nodiscard]] std::unique_ptr<Kernel> make_nothing(const KernelScope& scope);

}  // namespace lockstep
