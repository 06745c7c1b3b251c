// See bare.hpp.
#include "micro/bare.hpp"

#include "micro/bare_primitive.hpp"

namespace lockstep::bench {

namespace {

using Kernels = std::vector<BareKernel> (*)(const Maker&, const Graph&, const Operation&, std::size_t rows);

/// Null for an operation that oneDNN has no primitive for.
Kernels kernels_of(const Operation& operation) noexcept {
  switch (operation.kind) {
    case OperationKind::convolution:
    case OperationKind::convolution_backward: return operation.is_transposed ? nullptr : convolution_kernels;
    case OperationKind::dense:
    case OperationKind::dense_backward: return dense_kernels;
    case OperationKind::max_pooling:
    case OperationKind::max_pooling_backward:
    case OperationKind::average_pooling:
    case OperationKind::average_pooling_backward: return pooling_kernels;
    case OperationKind::batch_normalization:
    case OperationKind::batch_normalization_backward: return normalization_kernels;
    case OperationKind::activation:
    case OperationKind::activation_backward:
    case OperationKind::merge:
    case OperationKind::sum_gradients: return elementwise_kernels;
    default: return nullptr;
  }
}

}  // namespace

std::vector<BareKernel> bare_kernels(const onednn::Context& context, const Graph& graph, const Operation& operation,
                                     std::size_t rows) {
  const Kernels kernels = kernels_of(operation);
  return kernels == nullptr ? std::vector<BareKernel>() : kernels(Maker(context), graph, operation, rows);
}

bool has_bare_kernel(const Operation& operation) noexcept { return kernels_of(operation) != nullptr; }

}  // namespace lockstep::bench
