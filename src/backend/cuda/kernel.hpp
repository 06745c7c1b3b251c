// A kernel is an operation bound to device buffers for one local batch size. Also declares the factories, which have
// one file each. Steps may be captured, so `enqueue` must not allocate or synchronize, and must read values that change
// from step to step from the StepArguments in device memory.
#pragma once

#include "backend/backend.hpp"
#include "backend/cuda/cuda_context.hpp"
#include "backend/cuda/step_arguments.hpp"
#include "backend/operation_scope.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::cuda {

class Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  virtual void enqueue(const StepContext& context) = 0;

  /// The library's algorithm, or "custom".
  [[nodiscard]] virtual std::string implementation() const { return "custom"; }
};

struct KernelScope : OperationScope {
  const StepArguments* arguments;  ///< on the device
  std::byte* reduction_scratch;    ///< scratch memory of one per-channel sum
  const CudaContext& cuda_context;
  void* converted_gradient = nullptr;  ///< the output's gradient in the input's type, where the types differ

  /// What the products of a backward operation read: [pixels, channels].
  [[nodiscard]] void* output_gradient() const {
    return converted_gradient != nullptr ? converted_gradient : gradient<void>(operation.output);
  }
};

// The factories: make_gather() and so on.
#define LOCKSTEP_KERNEL(kind, kernel) [[nodiscard]] std::unique_ptr<Kernel> make_##kernel(const KernelScope& scope);
LOCKSTEP_OPERATION_KINDS(LOCKSTEP_KERNEL)
#undef LOCKSTEP_KERNEL

/// The kernel of one call of a shared layer. The weight gradients of `make`'s kernel go to
/// KernelScope::separate_gradients, and from there, in the order of the calls, into their sum.
[[nodiscard]] std::unique_ptr<Kernel> make_shared_layer(const KernelScope& scope,
                                                        std::unique_ptr<Kernel> (*make)(const KernelScope&));

/// Throws UsageError: GPUs have no kernel for the operation's layer, or for how it is used (`how` begins with a space).
[[noreturn]] void refuse_layer(const KernelScope& scope, const std::string& how = {});

/// Throws UsageError that names the first weight with a regularizer or a constraint, if there is one.
void refuse_regularizers_and_constraints(const Graph& graph);
/// Throws UsageError for a model that has more than one input or output.
void refuse_several_inputs_or_outputs(const Graph& graph);

}  // namespace lockstep::cuda
