// A kernel is an operation bound to buffers for one local batch size. Also declares the factories; a
// file holds those of one kind of operation.
#pragma once

#include "backend/backend.hpp"
#include "backend/cpu/onednn.hpp"
#include "backend/operation_scope.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  virtual void run(const StepContext& context) = 0;

  /// The implementation: oneDNN's name, or "loop", "winograd", "few_channels" or "depthwise" for our own.
  [[nodiscard]] virtual std::string implementation() const { return "loop"; }
};

/// True if the tensor's gradient overwrites its value. This is possible if a Dense layer reads the value last: its
/// backward writes the gradient chunk by chunk, each after the last use of that chunk of the value. It saves cache for
/// a tensor that is often the model's largest.
[[nodiscard]] bool is_gradient_in_place(const Graph& graph, int tensor);

/// What the microbatches of an operation share, by the index of its parameter: a convolution's weights as the
/// operation's kind reads them, which the first microbatch converts for all, and sums of their gradients.
using ConvertedWeights = std::map<std::pair<int, OperationKind>, dnnl::memory>;

struct KernelScope : OperationScope {
  std::byte* scratch = nullptr;  ///< used by one kernel at a time: see DenseBackward and ComponentWeights
  const std::vector<dnnl::memory::desc>& weight_layouts;  ///< by parameter: the layout of a convolution's kernel
  ConvertedWeights& converted_weights;                    ///< of all microbatches of a local batch size
  const onednn::Context& dnnl;
  int threads = 1;
  bool is_last_microbatch = true;  ///< the ones behind it, if any, have no examples

  [[nodiscard]] const dnnl::memory::desc& weight_layout() const { return weight_layouts[operation.parameter]; }
};

// The factories: make_gather() and so on.
#define LOCKSTEP_KERNEL(kind, kernel) [[nodiscard]] std::unique_ptr<Kernel> make_##kernel(const KernelScope& scope);
LOCKSTEP_OPERATION_KINDS(LOCKSTEP_KERNEL)
#undef LOCKSTEP_KERNEL

/// The kernel of one call of a shared layer. The weight gradients of `make`'s kernel go to
/// KernelScope::separate_gradients, and from there, in the order of the calls, into their sum.
[[nodiscard]] std::unique_ptr<Kernel> make_shared_layer(const KernelScope& scope,
                                                        std::unique_ptr<Kernel> (*make)(const KernelScope&));

/// The kernel of a BatchNormalization that computes its output once more, with the statistics of the forward pass.
[[nodiscard]] std::unique_ptr<Kernel> make_recomputed_normalization(const KernelScope& scope);

/// The kernel of an operation for which this rank holds no channels: writes zeros to the partial sum or the input
/// gradient. Null if there is nothing to write.
[[nodiscard]] std::unique_ptr<Kernel> make_empty_shard(const KernelScope& scope);

}  // namespace lockstep
