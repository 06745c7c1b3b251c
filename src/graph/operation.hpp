// A compute operation of a graph: what a backend runs on tensors and parameters. Communication between ranks is not an
// operation but a step of the plan (plan/plan_step.hpp).
#pragma once

#include "core/range.hpp"
#include "graph/convolution_choice.hpp"
#include "graph/operation_kind.hpp"
#include "layers/merge_functions.hpp"
#include "layers/window.hpp"

#include <lockstep/layers/architecture.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// One of `count` contiguous slices of this rank's examples.
struct Microbatch {
  std::size_t index = 0;
  std::size_t count = 1;
};

/// The position of an operation among those of its layer's calls, in forward or backward execution order.
struct SharedUse {
  int index = 0;
  int count = 1;  ///< more than 1 for a layer that is called several times: it has one set of parameters
};

/// The axis of an operand along which a dot product sums.
struct SummedAxis {
  std::int64_t terms = 1;   ///< elements along the axis
  std::int64_t stride = 1;  ///< elements from one to the next in memory, channels last
};

/// A tensor that a merge, a concatenation, a dot product, a sum of gradients or a loss reads.
struct Operand {
  int tensor = -1;
  ActivationFunction activation = ActivationFunction::linear;  ///< fused into the tensor
  bool needs_gradient = false;                                 ///< backward: whether to compute the tensor's gradient
  SummedAxis summed = {};                                      ///< of a dot product
};

/// Layers, tensors and parameters are indices into the graph; -1 means no tensor or no parameter.
struct Operation {
  OperationKind kind = OperationKind::gather;
  int layer = 0;
  int input = -1;      ///< of a merge, concatenation or dot product: the first operand
  int output = -1;     ///< backward: the forward operation's output, whose gradient is read
  int parameter = -1;  ///< the first that it uses: a kernel, then the bias
  int num_parameters = 0;
  SharedUse shared = {};
  ActivationFunction activation = ActivationFunction::linear;        ///< fused into the output
  ActivationFunction input_activation = ActivationFunction::linear;  ///< backward: fused into the input
  bool derives_activation = false;  ///< backward: multiplies output's gradient by the derivative of `activation`,
                                    ///< which the operations that read the output then do not
  bool input_gradient = false;      ///< backward: whether to compute input's gradient
  bool is_frozen = false;  ///< the layer is not trainable: no gradients of its parameters, and fixed statistics
  /// Of a merge, concatenation or dot product: its inputs. Of sum_gradients: the forks of `input`. Of a loss: the
  /// tensor that it is computed from, and of the first output's loss also the outputs of all activity_penalty
  /// operations. The loss writes the gradients of these. Metrics are computed from `input`, the model's output.
  std::vector<Operand> operands = {};
  std::size_t model_input = 0;         ///< gather: index in Graph::inputs
  std::size_t model_output = 0;        ///< loss: index in Graph::outputs
  std::int64_t concatenated_rows = 1;  ///< of an example's output, channels last: each has a part of every operand
  MergeFunction merge = MergeFunction::add;
  Range input_features = {};  ///< dense_backward: the chunk's rows of the kernel, in the order of the input's layout
  Microbatch microbatch = {};
  Windows windows = {};                ///< of poolings and convolutions
  std::int64_t groups = 1;             ///< of a convolution's channels; as many as input channels if it is depthwise
  bool is_transposed = false;          ///< a transposed convolution: the windows slide over its output
  ConvolutionChoice convolution = {};  ///< convolution, convolution_backward: set by Backend::lay_out
  bool is_batch_split = false;         ///< computes this rank's slice of the batch (Graph::examples_of), not all of it
  std::optional<std::size_t> all_to_all = {};  ///< pack and unpack: index in Graph::all_to_alls
  std::optional<int> partial_sum = {};         ///< the parameter in whose memory its partial sum is all-reduced
};

[[nodiscard]] inline const OperationTraits& traits_of(const Operation& operation) noexcept {
  return traits_of(operation.kind);
}

[[nodiscard]] inline bool is_backward(const Operation& operation) noexcept { return is_backward(operation.kind); }

/// Whether the ranks all-reduce a partial sum after the operation.
[[nodiscard]] inline bool makes_partial_sum(const Operation& operation) noexcept {
  return operation.partial_sum && !traits_of(operation).reads_partial_sum;
}

}  // namespace lockstep
