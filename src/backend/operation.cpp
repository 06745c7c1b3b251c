// Names of the operations, for plans that people read.
#include "backend/backend.hpp"

namespace lockstep {

std::string_view name_of(OperationKind kind) noexcept {
  switch (kind) {
    case OperationKind::gather: return "gather";
    case OperationKind::convolution: return "convolution";
    case OperationKind::dense: return "dense";
    case OperationKind::max_pooling: return "max_pooling";
    case OperationKind::average_pooling: return "average_pooling";
    case OperationKind::dropout: return "dropout";
    case OperationKind::batch_normalization: return "batch_normalization";
    case OperationKind::activation: return "activation";
    case OperationKind::softmax: return "softmax";
    case OperationKind::finish_sum: return "finish_sum";
    case OperationKind::loss: return "loss";
    case OperationKind::convolution_backward: return "convolution_backward";
    case OperationKind::dense_backward: return "dense_backward";
    case OperationKind::max_pooling_backward: return "max_pooling_backward";
    case OperationKind::average_pooling_backward: return "average_pooling_backward";
    case OperationKind::dropout_backward: return "dropout_backward";
    case OperationKind::batch_normalization_backward: return "batch_normalization_backward";
    case OperationKind::activation_backward: return "activation_backward";
    case OperationKind::softmax_backward: return "softmax_backward";
    case OperationKind::offer_gradient: return "offer_gradient";
    case OperationKind::take_gradient: return "take_gradient";
    case OperationKind::contribute: return "contribute";
    case OperationKind::update: return "update";
    case OperationKind::await: return "await";
    case OperationKind::update_own: return "update_own";
    case OperationKind::pack: return "pack";
    case OperationKind::give: return "give";
    case OperationKind::take: return "take";
    case OperationKind::unpack: return "unpack";
  }
  return "?";
}

}  // namespace lockstep
