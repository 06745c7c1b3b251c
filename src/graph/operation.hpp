// A compute operation of a graph: what a backend runs on tensors and parameters. Communication between ranks is not an
// operation but a step of the plan (plan/plan_step.hpp).
#pragma once

#include "core/range.hpp"
#include "graph/convolution_choice.hpp"
#include "graph/operation_kind.hpp"
#include "layers/merge_functions.hpp"

#include <lockstep/layers/architecture.hpp>

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

/// One of `count` contiguous slices of this rank's examples.
struct Microbatch {
  std::size_t index = 0;
  std::size_t count = 1;
};

/// A tensor that a merge, a sum of gradients or a loss reads.
struct Operand {
  int tensor = -1;
  ActivationFunction activation = ActivationFunction::linear;  ///< fused into the tensor
  bool needs_gradient = false;                                 ///< backward: whether to compute the tensor's gradient
};

/// Layers, tensors and parameters are indices into the graph; -1 means no tensor or no parameter.
struct Operation {
  OperationKind kind = OperationKind::gather;
  int layer = 0;
  int input = -1;      ///< of a merge: the first operand
  int output = -1;     ///< backward: the forward operation's output, whose gradient is read
  int parameter = -1;  ///< first of the layer's parameters
  ActivationFunction activation = ActivationFunction::linear;        ///< fused into the output
  ActivationFunction input_activation = ActivationFunction::linear;  ///< backward: fused into the input
  bool input_gradient = false;                                       ///< backward: whether to compute input's gradient
  /// Of a merge: its inputs. Of sum_gradients: the forks of `input`. Of a loss: the tensor that it is computed from and
  /// whose gradient it writes; metrics are computed from `input`, the model's output.
  std::vector<Operand> operands = {};
  MergeFunction merge = MergeFunction::add;
  Range input_features = {};  ///< dense_backward: the chunk's rows of the kernel, in the order of the input's layout
  Microbatch microbatch = {};
  ConvolutionChoice convolution = {};  ///< convolution, convolution_backward: set by Backend::lay_out
  bool is_batch_split = false;         ///< computes this rank's slice of the batch (Graph::examples_of), not all of it
  std::optional<std::size_t> all_to_all = {};  ///< pack and unpack: index in Graph::all_to_alls
  std::optional<int> partial_sum = {};         ///< the parameter in whose memory its partial sum is all-reduced
};

[[nodiscard]] inline const OperationTraits& traits_of(const Operation& operation) noexcept {
  return traits_of(operation.kind);
}

[[nodiscard]] inline bool is_backward(const Operation& operation) noexcept { return is_backward(operation.kind); }

}  // namespace lockstep
