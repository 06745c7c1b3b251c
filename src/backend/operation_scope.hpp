// An operation and the memory that its kernel reads and writes. The kernels of all devices are constructed from it.
#pragma once

#include "backend/arenas.hpp"
#include "core/bfloat16.hpp"
#include "graph/graph.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// A tensor's memory, sized for the largest local batch or for one microbatch. `gradient` is null if nothing needs it.
struct TensorBuffers {
  std::byte* value = nullptr;
  std::byte* gradient = nullptr;
  std::byte* saved_for_backward = nullptr;  ///< see SavedForBackward
};

/// The tensor in whose memory the values of a tensor lie, and what forward saves of it: itself, unless it is an alias.
[[nodiscard]] inline int value_owner(const Graph& graph, int tensor) {
  while (graph.tensors[tensor].alias >= 0) tensor = graph.tensors[tensor].alias;
  return tensor;
}
[[nodiscard]] inline int gradient_owner(const Graph& graph, int tensor) {
  while (graph.tensors[tensor].gradient_alias >= 0) tensor = graph.tensors[tensor].gradient_alias;
  return tensor;
}

/// Gives aliases the memory of the tensors whose values or gradients they share.
inline void share_aliases(const Graph& graph, std::vector<TensorBuffers>& buffers) {
  for (std::size_t t = 0; t < buffers.size(); ++t) {
    const auto tensor = static_cast<int>(t);
    const TensorBuffers& owner = buffers[value_owner(graph, tensor)];
    buffers[t] = {owner.value, buffers[gradient_owner(graph, tensor)].gradient, owner.saved_for_backward};
  }
}

/// Whether the arena's gradients are not what the operation's kernel writes. A shared layer's are sums over its calls.
/// A layer that is not trainable has none, and kernels that compute them along with the input's gradient lose them
/// here.
[[nodiscard]] inline bool has_separate_gradients(const Operation& operation) {
  return operation.shared.count > 1 || (operation.is_frozen && !traits_of(operation).has_kernel);
}

/// Where a parameter begins in OperationScope::separate_gradients, which hold a layer's parameters from `first` on.
[[nodiscard]] inline std::size_t separate_offset(const Graph& graph, int first, int parameter) {
  constexpr std::size_t line = 16;  // floats of a cache line
  std::size_t offset = 0;
  for (int p = first; p < parameter; ++p) offset += (graph.parameters[p].storage + line - 1) / line * line;
  return offset;
}

/// Values that backward computes again instead of keeping them: those of a few examples, next to the operation that
/// reads them. The kernel that writes them and the kernel that reads them have the same examples.
struct RecomputedValues {
  int tensor = -1;
  std::byte* values = nullptr;  ///< from the kernels' first example on
};

/// The product of a Dense layer: [rows, features] times [features, units]. An example has a row for each pixel.
struct ProductShape {
  std::int64_t rows = 0;
  std::int64_t features = 0;
  std::int64_t units = 0;
};

/// All references must outlive the kernel.
struct OperationScope {
  const Graph& graph;
  const Operation& operation;
  std::size_t first_example = 0;  ///< index among the rank's examples
  std::size_t num_examples = 0;
  const std::vector<TensorBuffers>& buffers;
  const Arenas& arenas;
  float* separate_gradients = nullptr;  ///< of has_separate_gradients: here kernels write weight gradients
  RecomputedValues recomputed = {};

  [[nodiscard]] const TensorSpec& input() const { return graph.tensors[operation.input]; }
  [[nodiscard]] const TensorSpec& output() const { return graph.tensors[operation.output]; }
  [[nodiscard]] const LayerInfo& layer() const { return graph.layers[operation.layer]; }
  [[nodiscard]] bool has_bias() const { return operation.num_parameters > 1; }
  [[nodiscard]] bool is_backward() const { return lockstep::is_backward(operation); }
  [[nodiscard]] std::size_t count(const TensorSpec& tensor) const {
    return num_examples * static_cast<std::size_t>(tensor.elements());
  }

  /// Of a Dense layer, forward or backward.
  [[nodiscard]] ProductShape product() const {
    const std::int64_t pixels = output().height * output().width;
    return {static_cast<std::int64_t>(num_examples) * pixels, input().elements() / pixels,
            output().elements() / pixels};
  }

  /// A tensor's values, from this kernel's first example on.
  template <typename T>
  [[nodiscard]] T* value(int tensor) const {
    if (tensor == recomputed.tensor) return reinterpret_cast<T*>(recomputed.values);
    return reinterpret_cast<T*>(buffers[tensor].value + offset(tensor));
  }
  template <typename T>
  [[nodiscard]] T* gradient(int tensor) const {
    std::byte* gradient = buffers[tensor].gradient;
    return gradient == nullptr ? nullptr : reinterpret_cast<T*>(gradient + offset(tensor));
  }
  /// The data that forward saved for backward: one byte per element, from this kernel's first example on. Statistics
  /// are not per element, so only a kernel that has all examples may read them here.
  template <typename T = std::uint8_t>
  [[nodiscard]] T* saved_for_backward(int tensor) const {
    std::byte* saved = buffers[tensor].saved_for_backward;
    const std::size_t at = first_example * static_cast<std::size_t>(graph.tensors[tensor].elements());
    return saved == nullptr ? nullptr : reinterpret_cast<T*>(saved + at);
  }

  [[nodiscard]] float* weights(int parameter) const {
    const ParameterSpec& spec = graph.parameters[parameter];
    return arenas.of(spec).weights.data() + spec.offset;
  }
  [[nodiscard]] float* weights_gradient(int parameter) const {
    const ParameterSpec& spec = graph.parameters[parameter];
    if (separate_gradients != nullptr)
      return separate_gradients + separate_offset(graph, operation.parameter, parameter);
    return arenas.of(spec).gradients.data() + spec.offset;
  }

  [[nodiscard]] std::uint16_t* low_precision(int parameter) const {
    const ParameterSpec& spec = graph.parameters[parameter];
    return arenas.of(spec).low_precision.data() + spec.offset;
  }

  [[nodiscard]] std::size_t offset(int tensor) const {
    const TensorSpec& spec = graph.tensors[tensor];
    if (spec.microbatch_examples > 0) return 0;
    return first_example * static_cast<std::size_t>(spec.elements()) * size_of(spec.type);
  }
};

/// The elements that separate_gradients needs for any of the operations.
[[nodiscard]] inline std::size_t separate_elements(const Graph& graph, const std::vector<Operation>& operations) {
  std::size_t elements = 0;
  for (const Operation& operation : operations) {
    if (!has_separate_gradients(operation)) continue;
    const int end = operation.parameter + operation.num_parameters;
    elements = std::max(elements, separate_offset(graph, operation.parameter, end));
  }
  return elements;
}

/// Calls `function` with a value of the tensor's element type: with_type(spec, [&](auto zero) { using T = ...; }).
template <typename Function>
auto with_type(const TensorSpec& tensor, Function&& function) {
  if (tensor.type == ElementType::bfloat16) return function(BFloat16{});
  return function(float{});
}

}  // namespace lockstep
