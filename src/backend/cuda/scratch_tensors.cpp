// See scratch_tensors.hpp.
#include "backend/cuda/scratch_tensors.hpp"

#include "backend/cuda/kernel_launchers.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep::cuda {

namespace {

constexpr std::size_t alignment = 256;  // of the memory that CUDA allocates; algorithms depend on alignments up to it

}  // namespace

ScratchTensors::ScratchTensors(const KernelScope& scope)
    : buffers_(scope.buffers),
      arenas_(scope.arenas),
      scope_{{scope.graph, scope.operation, 0, scope.num_examples, buffers_, arenas_},
             scope.arguments,
             scope.reduction_scratch,
             scope.cuda_context} {
  replace_tensors(scope);
  if (scope.operation.num_parameters > 0) replace_parameters(scope);
}

void ScratchTensors::replace_tensors(const KernelScope& scope) {
  for (const int tensor : {scope.operation.input, scope.operation.output}) {
    if (tensor < 0) continue;
    const TensorSpec& spec = scope.graph.tensors[tensor];
    const std::size_t count = scope.count(spec);
    buffers_[tensor].value = replace(buffers_[tensor].value, count, spec.type);
    buffers_[tensor].gradient = replace(buffers_[tensor].gradient, count, spec.type);
  }
  if (scope.converted_gradient == nullptr) return;
  const std::size_t count = scope.count(scope.output());
  scope_.converted_gradient = replace(static_cast<std::byte*>(scope.converted_gradient), count, scope.input().type);
}

/// Shifts the arenas' spans, so that the offsets of the operation's parameters point into the scratch memory.
void ScratchTensors::replace_parameters(const KernelScope& scope) {
  const int first = scope.operation.parameter;
  const int last = first + scope.operation.num_parameters - 1;
  std::size_t begin = scope.graph.parameters[first].offset;
  std::size_t end = 0;
  for (int p = first; p <= last; ++p) {
    const ParameterSpec& parameter = scope.graph.parameters[p];
    begin = std::min(begin, parameter.offset);
    end = std::max(end, parameter.offset + parameter.storage);
  }
  const auto replace_in = [&](auto& arena, ElementType type) {
    if (arena.size() >= end) arena = {replace(arena.data() + begin, end - begin, type) - begin, end};
  };
  replace_in(arenas_.weights, ElementType::float32);
  replace_in(arenas_.gradients, ElementType::float32);
  replace_in(arenas_.low_precision, ElementType::bfloat16);
  scope_.separate_gradients =
      replace(scope.separate_gradients, separate_offset(scope.graph, first, last + 1), ElementType::float32);
}

template <typename T>
T* ScratchTensors::replace(T* original, std::size_t count, ElementType type) {
  if (original == nullptr) return nullptr;
  std::byte* const memory = memory_.emplace_back(count * size_of(type) + alignment).data();
  std::byte* const aligned = memory + reinterpret_cast<std::uintptr_t>(original) % alignment;
  fill_with_random_numbers(scope_.cuda_context.stream(), type, aligned, count);
  return reinterpret_cast<T*>(aligned);
}

}  // namespace lockstep::cuda
