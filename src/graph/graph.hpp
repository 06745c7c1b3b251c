// A model lowered for a device: tensors, parameters, and the operations that compute on them.
//
// A tensor is the output of one operation, or an alias of one: Reshape and Flatten add aliases or change a shape. Three
// conventions keep the backward pass short:
//   - The gradient of a tensor is the gradient before the activation that its producer fused. The operation that writes
//     the gradient multiplies it by the activation's derivative, which is computed from the tensor itself. Activations
//     whose derivative needs more, and softmax, are never fused; they are separate operations.
//   - A tensor that several operations read has one alias for each use (TensorSpec::is_fork). Each operation writes the
//     gradient of its own alias, and sum_gradients adds them.
//   - Losses are summed over a rank's examples and divided by the global batch size, so the all-reduced gradients are
//     the step's gradient.
#pragma once

#include "core/range.hpp"
#include "graph/operation.hpp"
#include "graph/parameter_spec.hpp"
#include "graph/tensor_spec.hpp"

#include <lockstep/layers/architecture.hpp>
#include <lockstep/losses/losses.hpp>
#include <lockstep/metrics/metrics.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// One of the model's inputs, which a gather copies. It computes x * scale + offset, where x is a byte divided by
/// byte_divisor(), or the value itself for floats.
struct GraphInput {
  int tensor = -1;                ///< that gather writes
  double byte_scale = 1.0 / 255;  ///< see byte_scale_of()
  double scale = 1;               ///< of the model's Rescaling layers
  double offset = 0;              ///< of the model's Rescaling layers

  /// Bytes are divided by this, as Keras programs do (pixels / 255). Multiplying by 1/255 would change the last bit.
  [[nodiscard]] float byte_divisor() const noexcept { return static_cast<float>(1 / byte_scale); }
};

/// One of the model's outputs, with its loss and its metrics.
struct GraphOutput {
  std::string name;
  int tensor = -1;  ///< that predict returns
  Loss loss;
  double loss_weight = 1;  ///< in the sum that is trained
  std::vector<Metric> metrics = {};
  std::vector<Metric> weighted_metrics = {};
  /// Where its sums begin in the metrics parameter: of several outputs first its loss, then the sums of its metrics.
  std::size_t first_sum = 0;
};

/// The all-to-all between data-parallel layers and the tensor-parallel layers after them. Each pair of ranks exchanges
/// blocks: the examples of one times the channels of the other. All vectors are indexed by rank.
struct AllToAllSpec {
  std::vector<std::int64_t> channels;       ///< number of channels of each rank, which are contiguous
  std::vector<std::size_t> send_counts;     ///< floats that this rank sends to each rank
  std::vector<std::size_t> receive_counts;  ///< floats that this rank receives from each rank
};

/// A model lowered to tensors, parameters and operations, layouts chosen: what a backend compiles.
struct Graph {
  std::vector<LayerInfo> layers;  ///< without nested models
  std::vector<TensorSpec> tensors;
  std::vector<ParameterSpec> parameters;  ///< Keras' order; then the metric sums; then the partial sums
  int partial_sums = 0;                   ///< parameters that are partial sums: the last ones
  std::vector<Operation> forward;         ///< gather ... loss, of several outputs one loss after the other
  bool is_chain = true;  ///< one input, each operation reads the output of the one before it, and none is penalized
  std::vector<Operation> backward;
  std::vector<AllToAllSpec> all_to_alls;  ///< of values, then of their gradients if these are needed
  int rank = 0;                           ///< of a tensor-parallel model: the rank whose shard this is
  int ranks = 1;                          ///< of a tensor-parallel model: the number of ranks
  double work = 0;  ///< multiply-adds of the whole model, forward, for one batch: estimate_work() times the examples
  std::size_t batch_norm_replicas = 0;  ///< of all ranks; 0: one per rank
  std::vector<GraphInput> inputs;       ///< in the model's order
  std::vector<GraphOutput> outputs;     ///< in the model's order
  bool mixed_bfloat16 = false;
  bool plain = false;               ///< all tensors have Keras' order, even where another layout is faster
  std::size_t cache_bytes = 0;      ///< bytes of a microbatch's tensors that stay in the cache; 0: no microbatches
  std::size_t capacity = 0;         ///< examples in the largest local batch
  std::size_t layout_examples = 0;  ///< examples in the local batch that layouts were chosen for

  /// The examples of a rank in a batch of `batch` examples, for operations that split the batch.
  [[nodiscard]] Range examples_of(std::size_t batch, int of_rank) const {
    return examples_of_rank(batch, of_rank, ranks,
                            batch_norm_replicas > 0 ? batch_norm_replicas : static_cast<std::size_t>(ranks));
  }

  /// Whether the tensor is one of the model's inputs.
  [[nodiscard]] bool is_input(int tensor) const {
    return std::ranges::find(inputs, tensor, &GraphInput::tensor) != inputs.end();
  }

  [[nodiscard]] int metrics_parameter() const noexcept {
    return static_cast<int>(parameters.size()) - 1 - partial_sums;
  }
};

/// What `loss` writes to the metrics parameter's gradient.
enum MetricIndex : std::size_t {
  metric_loss,  ///< that is trained: of several outputs the weighted sum
  metric_count,
  metric_stop_after_this_step,    ///< ranks with StopRequest::after_this_step
  metric_stop_after_next_backup,  ///< ranks with StopRequest::after_next_backup
  first_metric_sum                ///< the sums of Graph::outputs, one after the other
};

}  // namespace lockstep
