// See sharding.hpp.
#include "parallel/sharding.hpp"

#include "graph/work.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

namespace lockstep {

ChannelRange channels_of(std::int64_t count, int rank, int ranks) noexcept {
  std::int64_t unit = 1;
  for (const std::int64_t wanted : {16, 8}) {
    if (unit == 1 && count % wanted == 0 && count / wanted >= ranks) unit = wanted;
  }
  const std::int64_t units = count / unit;
  const auto border = [&](std::int64_t part) {
    return (part * (units / ranks) + std::min(part, units % ranks)) * unit;
  };
  return {border(rank), border(rank + 1)};
}

std::string Sharding::code() const {
  std::string letters;
  for (const Split split : splits) letters += split_letters[static_cast<std::size_t>(split)];
  return letters;
}

bool Sharding::is_any_sharded() const {
  return std::any_of(splits.begin(), splits.end(), [](Split split) { return split != Split::replicated; });
}

std::string Sharding::to_string(const Graph& whole) const {
  std::string text = fmt::format("{} ranks, tensor parallel\n", ranks);
  for (std::size_t i = 0; i < splits.size(); ++i) {
    constexpr const char* names[] = {"replicated", "partial", "column", "row", "batch"};
    const Operation& operation = whole.forward[i];
    text += std::string(lockstep::to_string(operation.kind)) + " " + whole.layers[operation.layer].name + " " +
            names[static_cast<std::size_t>(splits[i])] + "\n";
  }
  return text;
}

namespace {

/// Builds one rank's graph from the unsharded one.
class GraphSharder {
 public:
  GraphSharder(const Graph& whole, const Sharding& sharding, int rank, std::size_t batch)
      : whole_(whole), sharding_(sharding), rank_(rank), batch_(static_cast<std::int64_t>(batch)), graph_(whole) {
    graph_.rank = rank;
    graph_.ranks = sharding.ranks;
  }

  Graph run() {
    for (std::size_t i = 0; i < whole_.forward.size(); ++i) {
      if (sharding_.splits[i] == Split::column) shard_tensor(whole_.forward[i].output);
    }
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const int root = graph_.tensors[t].alias;
      if (root >= 0 && graph_.tensors[root].whole_channels > 0) shard_tensor(static_cast<int>(t));
    }
    for (std::size_t i = 0; i < whole_.forward.size(); ++i) shard_parameters(whole_.forward[i], sharding_.splits[i]);
    shard_forward();
    shard_backward();
    graph_.work = static_cast<double>(batch_) * estimate_work(whole_);
    return std::move(graph_);
  }

 private:
  void shard_tensor(int t) {
    TensorSpec& tensor = graph_.tensors[t];
    const ChannelRange mine = channels_of(tensor.channels, rank_, sharding_.ranks);
    tensor.first_channel = mine.begin;
    tensor.whole_channels = tensor.channels;
    tensor.channels = mine.size();
  }

  void shard_parameters(const Operation& operation, Split split) {
    if (operation.parameter < 0 || operation.kind == OperationKind::loss) return;
    for (int i = 0; i < operation.num_parameters; ++i) {
      const std::size_t p = static_cast<std::size_t>(operation.parameter) + static_cast<std::size_t>(i);
      ParameterInfo& info = graph_.parameters[p].info;
      std::vector<std::int64_t> extents(info.shape.extents().begin(), info.shape.extents().end());
      if (sharding_.variables[p].length > 0) {
        if (split == Split::row) {
          const ShardAxis& kernel = sharding_.variables[p];
          std::int64_t& inputs = extents[extents.size() - 2];  // for a Dense kernel: pixels times channels
          inputs = inputs / kernel.length * channels_of(kernel.length, rank_, sharding_.ranks).size();
        } else {
          extents.back() = channels_of(extents.back(), rank_, sharding_.ranks).size();
        }
      }
      info.shape = Shape(std::move(extents));
      // Moving averages are computed in forward, where a `partial` operation is replicated. If the batch is split, the
      // ranks' statistics differ and are all-reduced.
      graph_.parameters[p].is_local = split != Split::batch && (split != Split::partial || !info.trainable);
      graph_.parameters[p].is_sharded = sharding_.variables[p].length > 0;
    }
  }

  /// Adds the parameter through which ranks all-reduce a tensor or its gradient.
  int add_partial_sum(int tensor, const std::string& what) {
    const Shape shape{batch_ * graph_.tensors[tensor].elements()};
    graph_.parameters.push_back({.name = graph_.tensors[tensor].name + "/" + what,
                                 .info = {what, shape, Initializer::zeros, false},
                                 .rule = UpdateRule::assign});
    ++graph_.partial_sums;
    return static_cast<int>(graph_.parameters.size()) - 1;
  }

  void shard_forward() {
    std::vector<Operation> forward;
    for (std::size_t i = 0; i < whole_.forward.size(); ++i) {
      Operation operation = whole_.forward[i];
      operation.is_batch_split = sharding_.splits[i] == Split::batch;
      if (sharding_.splits[i] == Split::row) {
        if (sharding_.splits[i - 1] == Split::batch) insert_all_to_all(operation, forward);
        operation.partial_sum = add_partial_sum(operation.output, "sum");
        forward.push_back(operation);
        operation.kind = OperationKind::finish_partial_sum;
        operation.input = -1;
      }
      forward.push_back(operation);
    }
    graph_.forward = std::move(forward);
  }

  /// Inserts the all-to-all between the last data-parallel operation and the first row-parallel one, which then reads a
  /// new tensor: this rank's channels of all examples.
  void insert_all_to_all(Operation& row_parallel, std::vector<Operation>& forward) {
    batch_split_output_ = row_parallel.input;
    received_ = static_cast<int>(graph_.tensors.size());
    TensorSpec tensor = whole_.tensors[batch_split_output_];
    tensor.name += "/slice";
    tensor.alias = tensor.gradient_alias = -1;
    tensor.requires_channels_last = false;
    graph_.tensors.push_back(std::move(tensor));
    shard_tensor(received_);
    graph_.all_to_alls.push_back(all_to_all_of(whole_.tensors[batch_split_output_]));
    row_parallel.input = received_;
    Operation pack{.kind = OperationKind::pack_all_to_all, .layer = row_parallel.layer, .input = batch_split_output_};
    pack.is_batch_split = true;
    pack.all_to_all = 0;
    forward.push_back(pack);
    Operation unpack{.kind = OperationKind::unpack_all_to_all, .layer = row_parallel.layer, .output = received_};
    unpack.all_to_all = 0;
    forward.push_back(unpack);
  }

  /// The same for the gradient, with sender and receiver swapped.
  void insert_backward_all_to_all(int layer, std::vector<Operation>& backward) {
    AllToAllSpec all_to_all = graph_.all_to_alls.front();
    std::swap(all_to_all.send_counts, all_to_all.receive_counts);
    graph_.all_to_alls.push_back(std::move(all_to_all));
    Operation pack{.kind = OperationKind::pack_all_to_all, .layer = layer, .input = received_};
    pack.all_to_all = 1;
    backward.push_back(pack);
    Operation unpack{.kind = OperationKind::unpack_all_to_all, .layer = layer, .output = batch_split_output_};
    unpack.is_batch_split = true;
    unpack.all_to_all = 1;
    backward.push_back(unpack);
  }

  [[nodiscard]] AllToAllSpec all_to_all_of(const TensorSpec& tensor) const {
    const auto channels = [&](int rank) { return channels_of(tensor.channels, rank, sharding_.ranks).size(); };
    const auto block = [&](int of_examples, int of_channels) {
      const std::size_t examples = graph_.examples_of(static_cast<std::size_t>(batch_), of_examples).size();
      return examples * static_cast<std::size_t>(tensor.height * tensor.width * channels(of_channels));
    };
    AllToAllSpec all_to_all;
    for (int rank = 0; rank < sharding_.ranks; ++rank) {
      all_to_all.channels.push_back(channels(rank));
      all_to_all.send_counts.push_back(block(rank_, rank));
      all_to_all.receive_counts.push_back(block(rank, rank_));
    }
    return all_to_all;
  }

  /// Inserts an all-reduce after each operation that computes a partial gradient of its input, if the producer of the
  /// input needs the whole gradient.
  void shard_backward() {
    std::vector<Operation> backward;
    for (Operation operation : whole_.backward) {
      operation.is_batch_split = sharding_.splits[forward_index(operation.output)] == Split::batch;
      const bool makes_partial_gradient = operation.input_gradient && gradient_is_partial(operation);
      const bool was_sent = batch_split_output_ >= 0 && operation.input == batch_split_output_;
      if (was_sent) operation.input = received_;
      if (operation.kind == OperationKind::dense_backward) {
        const Shape& kernel = graph_.parameters[operation.parameter].info.shape;
        operation.input_features = {0, static_cast<std::size_t>(kernel[0])};
      }
      backward.push_back(operation);
      if (was_sent && operation.input_gradient) insert_backward_all_to_all(operation.layer, backward);
      if (!makes_partial_gradient) continue;
      Operation gradient_sum{.kind = OperationKind::start_partial_gradient_sum,
                             .layer = operation.layer,
                             .input = operation.input,
                             .output = operation.input,
                             .partial_sum = add_partial_sum(operation.input, "gradient")};
      backward.push_back(gradient_sum);
      gradient_sum.kind = OperationKind::finish_partial_gradient_sum;
      backward.push_back(gradient_sum);
    }
    graph_.backward = std::move(backward);
  }

  [[nodiscard]] std::size_t forward_index(int output) const {
    const auto writes = [&](const Operation& operation) { return operation.output == output; };
    const auto found = std::find_if(whole_.forward.begin(), whole_.forward.end(), writes);
    return static_cast<std::size_t>(found - whole_.forward.begin());
  }

  [[nodiscard]] bool gradient_is_partial(const Operation& backward) const {
    if (backward.output < 0) return false;  // the loss
    const Split mine = sharding_.splits[forward_index(backward.output)];
    const int root = whole_.tensors[backward.input].alias;
    const Split before = sharding_.splits[forward_index(root >= 0 ? root : backward.input)];
    const bool takes_whole = before == Split::replicated || before == Split::row;
    return takes_whole && (mine == Split::column || mine == Split::partial);
  }

  const Graph& whole_;
  const Sharding& sharding_;
  int rank_;
  std::int64_t batch_;
  Graph graph_;
  int batch_split_output_ = -1;  ///< the last tensor of the data-parallel layers
  int received_ = -1;            ///< its counterpart after the all-to-all: this rank's channels of all examples
};

/// True if the unsharded tensors of two ranks' graphs have the same layouts.
bool same_layouts(const Graph& a, const Graph& b) {
  for (std::size_t t = 0; t < a.tensors.size(); ++t) {
    if (a.tensors[t].whole_channels > 0) continue;
    if (a.tensors[t].layout != b.tensors[t].layout) return false;
  }
  return true;
}

}  // namespace

Graph shard_graph(const Graph& whole, const Sharding& sharding, int rank, std::size_t batch, const Backend& backend) {
  Graph mine = GraphSharder(whole, sharding, rank, batch).run();
  backend.lay_out(mine, batch);
  // Backends may choose different layouts for different numbers of channels, but unsharded tensors must have the same
  // layout on all ranks. Checking the first and the last rank suffices: they have the most and the fewest channels, and
  // no rank has another number.
  for (const int other : {0, sharding.ranks - 1}) {
    Graph others = GraphSharder(whole, sharding, other, batch).run();
    backend.lay_out(others, batch);
    if (same_layouts(mine, others)) continue;
    mine = GraphSharder(whole, sharding, rank, batch).run();
    mine.plain = true;
    backend.lay_out(mine, batch);
    break;
  }
  return mine;
}

}  // namespace lockstep
