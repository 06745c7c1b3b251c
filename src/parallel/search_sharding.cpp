// See sharding.hpp. Chooses the split of each operation of a chain by dynamic programming (A. Viterbi, 1967). For each
// state in which a value can reach an operation, it keeps the cheapest splits that lead there.
#include "graph/work.hpp"
#include "parallel/sharding.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep {

namespace {

/// How an operation's output and the output's gradient are distributed over the ranks.
enum State : std::size_t {
  not_sharded,       ///< value and gradient are whole; no operation was sharded so far
  partial_gradient,  ///< the value is whole, its gradient is a partial sum
  channel_shard,     ///< value and gradient are shards of the channels
  after_all_reduce,  ///< value and gradient are whole, after a row-parallel operation
  batch_split,       ///< value and gradient of this rank's examples; all operations so far are data parallel
  states
};

struct Transition {
  double seconds = std::numeric_limits<double>::infinity();
  State from = not_sharded;
  Split split = Split::replicated;
};

/// False if a Reshape or Flatten before the operation changes which elements form a channel.
bool keeps_channels(const Graph& graph, const Operation& operation) {
  const TensorSpec& input = graph.tensors[operation.input];
  return input.alias < 0 || graph.tensors[input.alias].channels == input.channels;
}

/// Whether a constraint changes one of the operation's weights, which ranks then cannot hold in shards.
bool is_constrained(const Graph& graph, const Operation& operation) {
  const auto first = graph.parameters.begin() + std::max(operation.parameter, 0);
  return std::any_of(first, first + operation.num_parameters,
                     [](const ParameterSpec& parameter) { return parameter.is_constrained(); });
}

/// Whether ranks can compute shards of the operation's channels. Groups of channels and transposed kernels are not
/// split.
bool splits_channels(const Graph& graph, const Operation& operation) {
  return traits_of(operation).has_kernel && operation.groups == 1 && !operation.is_transposed &&
         !is_constrained(graph, operation);
}

/// Whether an operation on a shard of the channels needs no others.
bool is_per_channel(const Graph& graph, const Operation& operation) {
  return traits_of(operation).is_per_channel && !is_constrained(graph, operation);
}

class ShardingSearch {
 public:
  ShardingSearch(const Graph& graph, int ranks, std::size_t batch, const HardwareModel& hardware)
      : graph_(graph), ranks_(ranks), batch_(static_cast<double>(batch)), hardware_(hardware) {}

  std::optional<Sharding> run() {
    if (!graph_.is_chain) return std::nullopt;
    const std::size_t count = graph_.forward.size();
    transitions_.resize(count);
    transitions_[0][not_sharded] = {0, not_sharded, Split::replicated};
    transitions_[0][partial_gradient] = {0, partial_gradient, Split::replicated};
    transitions_[0][batch_split] = {0, batch_split, Split::batch};
    for (std::size_t i = 1; i < count; ++i) {
      for (const State from : {not_sharded, partial_gradient, channel_shard, after_all_reduce, batch_split}) {
        if (std::isfinite(transitions_[i - 1][from].seconds)) extend(i, from);
      }
    }
    if (!std::isfinite(transitions_[count - 1][after_all_reduce].seconds)) return std::nullopt;
    Sharding sharding{ranks_, std::vector<Split>(count), {}, 0};
    State state = after_all_reduce;
    for (std::size_t i = count; i-- > 0;) {
      sharding.splits[i] = transitions_[i][state].split;
      state = transitions_[i][state].from;
    }
    find_axes(sharding);
    sharding.estimated_seconds = transitions_[count - 1][after_all_reduce].seconds;
    return sharding;
  }

  /// The sharding with this code, if it is one that `run` could choose.
  std::optional<Sharding> follow(const std::string& code) {
    if (code.size() != graph_.forward.size()) return std::nullopt;
    required_code_ = code;
    return run();
  }

  /// Every rank computes the whole model. Only metrics are all-reduced.
  [[nodiscard]] Sharding replicated() const {
    Sharding sharding{ranks_, std::vector<Split>(graph_.forward.size(), Split::replicated), {}, 0};
    find_axes(sharding);
    for (const Operation& operation : graph_.forward) {
      if (operation.input >= 0 && operation.kind != OperationKind::loss)
        sharding.estimated_seconds += work_seconds(operation, 1);
    }
    return sharding;
  }

  /// Every rank computes its slice of the batch, and all gradients are all-reduced.
  [[nodiscard]] double data_parallel_seconds() const {
    double seconds = 0;
    for (const Operation& operation : graph_.forward) {
      if (operation.input < 0 || operation.kind == OperationKind::loss) continue;
      seconds += work_seconds(operation, 1.0 / ranks_) + all_reduce_seconds(reduced_elements(operation));
    }
    return seconds;
  }

 private:
  void extend(std::size_t i, State from) {
    const Operation& operation = graph_.forward[i];
    const bool weighted = splits_channels(graph_, operation);
    if (operation.kind == OperationKind::loss) {
      if (from == after_all_reduce) relax(i, from, after_all_reduce, Split::replicated, 0);
      return;
    }
    if (from == not_sharded || from == after_all_reduce)
      relax(i, from, from, Split::replicated, work_seconds(operation, 1));
    if (from == partial_gradient || from == after_all_reduce) {
      // After an all-reduce in forward, backward must all-reduce the partial gradient.
      const double sum = from == after_all_reduce ? all_reduce_seconds(batch_ * elements_of(operation.input)) : 0;
      relax(i, from, partial_gradient, Split::partial,
            sum + work_seconds(operation, 1) + all_reduce_seconds(reduced_elements(operation)));
      if (weighted)
        relax(i, from, channel_shard, Split::column, sum + work_seconds(operation, shard_fraction(operation.output)));
    }
    if (from == batch_split) {
      relax(i, from, batch_split, Split::batch,
            work_seconds(operation, 1.0 / ranks_) + all_reduce_seconds(reduced_elements(operation)));
      // Not for the first layer: every rank has the whole input of the model, so no all-to-all is needed.
      if (weighted && i > 1) {
        relax(i, from, after_all_reduce, Split::row,
              2 * all_to_all_seconds(batch_ * elements_of(operation.input)) + row_parallel_seconds(operation) +
                  all_reduce_seconds(batch_ * elements_of(operation.output)));
      }
    }
    if (from == channel_shard && keeps_channels(graph_, operation)) {
      if (is_per_channel(graph_, operation)) {
        relax(i, from, channel_shard, Split::column, work_seconds(operation, shard_fraction(operation.output)));
      } else if (weighted) {
        relax(i, from, after_all_reduce, Split::row,
              row_parallel_seconds(operation) + all_reduce_seconds(batch_ * elements_of(operation.output)));
      }
    }
  }

  void relax(std::size_t i, State from, State to, Split split, double seconds) {
    if (!required_code_.empty() && required_code_[i] != split_letters[static_cast<std::size_t>(split)]) return;
    const double total = transitions_[i - 1][from].seconds + seconds;
    if (total < transitions_[i][to].seconds) transitions_[i][to] = {total, from, split};
  }

  [[nodiscard]] double elements_of(int tensor) const { return static_cast<double>(graph_.tensors[tensor].elements()); }

  /// The largest fraction of a tensor that a rank holds. Kernels of images compute at least 8 channels.
  [[nodiscard]] double shard_fraction(int tensor) const {
    const std::int64_t channels = graph_.tensors[tensor].channels;
    const auto most = static_cast<double>(channels_of(channels, 0, ranks_).size());
    return std::min(1.0, std::max(most, graph_.tensors[tensor].height > 1 ? 8.0 : 1.0) / static_cast<double>(channels));
  }

  /// The elements of an operation's gradients that travel: of an Embedding, those of the rows that a rank reads.
  [[nodiscard]] double reduced_elements(const Operation& operation) const {
    std::int64_t count = 0;
    for (int i = 0; i < operation.num_parameters; ++i) {
      const ParameterInfo& parameter = graph_.parameters[operation.parameter + i].info;
      if (parameter.trainable) count += parameter.shape.elements();
    }
    const bool is_sparse = operation.kind == OperationKind::embedding;
    return static_cast<double>(count) * (is_sparse ? expected_part_of_rows(graph_, operation, batch_ / ranks_) : 1);
  }

  /// Seconds of a fraction of an operation: forward, backward and update.
  [[nodiscard]] double work_seconds(const Operation& operation, double fraction) const {
    const double flops =
        (graph_.is_input(operation.input) ? 4 : 6) * batch_ * multiply_adds_per_example(graph_, operation);
    double bytes = 3 * output_bytes(operation);
    if (traits_of(operation).has_kernel) {
      const ParameterInfo& kernel = graph_.parameters[operation.parameter].info;
      bytes += 3 * 4 * static_cast<double>(kernel.shape.elements());
    }
    return fraction * (flops / hardware_.flops_per_second + bytes / hardware_.memory_bytes_per_second);
  }

  /// The same for a row-parallel layer, whose outputs are not sharded and are read and written again after the
  /// all-reduce. (Those of a Dense layer stay in the cache.)
  [[nodiscard]] double row_parallel_seconds(const Operation& operation) const {
    const double fraction = shard_fraction(operation.input);
    if (operation.kind == OperationKind::dense) return work_seconds(operation, fraction);
    const double outputs = output_bytes(operation) / hardware_.memory_bytes_per_second;
    return work_seconds(operation, fraction) + 3 * (1 - fraction) * outputs + 2 * outputs;
  }

  /// Bytes of an operation's outputs.
  [[nodiscard]] double output_bytes(const Operation& operation) const {
    return 4 * batch_ * elements_of(operation.output);
  }

  [[nodiscard]] double all_reduce_seconds(double elements) const {
    if (elements == 0) return 0;
    const double parts = 2.0 * (ranks_ - 1) / ranks_;
    return 2 * hardware_.latency + parts * 4 * elements / hardware_.bytes_per_second;
  }

  /// Each rank sends each other rank that rank's block.
  [[nodiscard]] double all_to_all_seconds(double elements) const {
    const double parts = static_cast<double>(ranks_ - 1) / ranks_ / ranks_;
    return hardware_.latency + parts * 4 * elements / hardware_.bytes_per_second;
  }

  void find_axes(Sharding& sharding) const {
    sharding.variables.resize(static_cast<std::size_t>(graph_.metrics_parameter()));
    for (std::size_t i = 0; i < sharding.splits.size(); ++i) {
      const Operation& operation = graph_.forward[i];
      if (operation.parameter < 0 || operation.kind == OperationKind::loss) continue;
      for (int k = 0; k < operation.num_parameters; ++k) {
        const std::size_t p = static_cast<std::size_t>(operation.parameter) + static_cast<std::size_t>(k);
        ShardAxis& variable = sharding.variables[p];
        const Shape& shape = graph_.parameters[p].info.shape;
        if (shape.rank() == 0) continue;
        const std::int64_t last = shape[shape.rank() - 1];
        if (sharding.splits[i] == Split::column) variable = {shape.elements() / last, last, 1};
        if (sharding.splits[i] == Split::row && k == 0) {  // a Dense kernel's inputs are pixels times channels
          const std::int64_t channels = graph_.tensors[operation.input].channels;
          variable = {shape.elements() / last / channels, channels, last};
        }
      }
    }
  }

  const Graph& graph_;
  int ranks_;
  double batch_;
  const HardwareModel& hardware_;
  std::string required_code_;  ///< restricts the search to the sharding with this code; empty: any
  std::vector<std::array<Transition, states>> transitions_;
};

}  // namespace

std::optional<Sharding> search_sharding(const Graph& whole, int ranks, std::size_t batch,
                                        const HardwareModel& hardware) {
  return ShardingSearch(whole, ranks, batch, hardware).run();
}

Sharding replicate_all(const Graph& whole, int ranks, std::size_t batch, const HardwareModel& hardware) {
  return ShardingSearch(whole, ranks, batch, hardware).replicated();
}

std::optional<Sharding> sharding_from_code(const Graph& whole, int ranks, const std::string& code) {
  const HardwareModel hardware;
  if (Sharding replicated = replicate_all(whole, ranks, 1, hardware); replicated.code() == code) return replicated;
  return ShardingSearch(whole, ranks, 1, hardware).follow(code);
}

double estimate_data_parallel(const Graph& whole, int ranks, std::size_t batch, const HardwareModel& hardware) {
  return ShardingSearch(whole, ranks, batch, hardware).data_parallel_seconds();
}

std::string why_not_tensor_parallel(const Graph& whole) {
  if (!whole.is_chain) return "its layers branch";
  std::string why = "it has no layer with weights that can be sharded";
  for (std::size_t i = 0; i < whole.forward.size(); ++i) {
    if (!splits_channels(whole, whole.forward[i])) continue;
    const std::string sharded = "the channels of layer '" + whole.layers[whole.forward[i].layer].name + "'";
    for (std::size_t next = i + 1; next < whole.forward.size(); ++next) {
      const Operation& operation = whole.forward[next];
      const std::string& name = whole.layers[operation.layer].name;
      if (operation.kind == OperationKind::loss) {
        why = sharded + " are the model's outputs, and the loss needs all of them: a sharded layer must be followed " +
              "by a Dense or Conv2D layer whose partial sums the workers all-reduce";
        break;
      }
      if (!keeps_channels(whole, operation)) {
        why = "layer '" + name + "' changes the shape of " + sharded;
        break;
      }
      if (is_per_channel(whole, operation)) continue;
      why = operation.layer == whole.forward[i].layer ? "layer '" + name + "' needs all of its own channels"
                                                      : "layer '" + name + "' needs all of " + sharded;
      break;
    }
  }
  return why;
}

}  // namespace lockstep
