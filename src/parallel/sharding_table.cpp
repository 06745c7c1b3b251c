// See sharding_table.hpp.
#include "parallel/sharding_table.hpp"

#include "core/format_number.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {

namespace {

/// The shard sizes: "16 + 16", or "16 each" for many ranks.
std::string shard_sizes(std::int64_t channels, int ranks) {
  constexpr int max_listed = 4;
  const auto size = [&](int rank) { return std::to_string(channels_of(channels, rank, ranks).size()); };
  if (ranks > max_listed) {
    return size(0) == size(ranks - 1) ? size(0) + " each" : size(ranks - 1) + " to " + size(0) + " each";
  }
  std::string text = size(0);
  for (int rank = 1; rank < ranks; ++rank) text += " + " + size(rank);
  return text;
}

struct Elements {
  double all = 0;  ///< what data-parallel ranks all-reduce: gradients, and the updates of moving averages
  double trainable = 0;
};

Elements elements_of(const Graph& graph, const Operation& operation) {
  Elements count;
  for (int i = 0; i < operation.num_parameters; ++i) {
    const ParameterInfo& parameter = graph.parameters[operation.parameter + i].info;
    const auto elements = static_cast<double>(parameter.shape.elements());
    count.all += elements;
    if (parameter.trainable) count.trainable += elements;
  }
  return count;
}

}  // namespace

std::vector<LayerSharding> layer_shardings(const Graph& whole, const std::optional<Sharding>& sharding, int ranks,
                                           std::size_t batch) {
  std::vector<LayerSharding> rows;
  const double sent = ranks > 1 ? 2.0 * (ranks - 1) / ranks * sizeof(float) : 0;  // bytes of each all-reduced element
  Split before = Split::replicated;
  for (std::size_t i = 1; i < whole.forward.size(); ++i) {
    const Operation& operation = whole.forward[i];
    if (operation.kind == OperationKind::loss) break;
    LayerSharding row{whole.layers[operation.layer].name, "data parallel", 0};
    double elements = 0;
    double exchanged = 0;
    const Elements values = elements_of(whole, operation);
    if (!sharding) {
      elements = values.all;
    } else {
      const Split split = sharding->splits[i];
      const double inputs = static_cast<double>(batch) * static_cast<double>(whole.tensors[operation.input].elements());
      const bool is_all_to_all = split == Split::row && before == Split::batch;
      const bool follows_all_reduce = before == Split::row || (before == Split::replicated && i > 1);
      if (split == Split::replicated) row.how = "replicated";
      if (split == Split::partial) {
        elements = values.trainable;
        row.how = std::string("replicated") + (elements > 0 ? ", gradients all-reduced" : "");
      }
      if (split == Split::batch) elements = values.all;
      if (split == Split::column) {
        row.how = "column-parallel, " + shard_sizes(whole.tensors[operation.output].channels, ranks);
      }
      if (split == Split::row) {
        row.how = "row-parallel, " + shard_sizes(whole.tensors[operation.input].channels, ranks);
        elements = static_cast<double>(batch) * static_cast<double>(whole.tensors[operation.output].elements());
      }
      const bool learns_before = std::any_of(whole.backward.begin(), whole.backward.end(), [&](const Operation& other) {
        return other.output == operation.output && other.input_gradient;
      });
      // Values and, if an earlier layer is trainable, gradients: each rank sends the other ranks their blocks.
      if (is_all_to_all) exchanged = (learns_before ? 2 : 1) * inputs * (ranks - 1) / ranks / ranks * sizeof(float);
      if (follows_all_reduce && learns_before && (split == Split::column || split == Split::partial))
        elements += inputs;
      before = split;
    }
    row.bytes_a_step = sent * elements + exchanged;
    // An activation that is not fused, such as softmax, is an operation of its layer.
    if (i > 1 && whole.forward[i - 1].layer == operation.layer) {
      rows.back().bytes_a_step += row.bytes_a_step;
    } else {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string to_text(const std::vector<LayerSharding>& rows) {
  std::size_t names = 0;
  std::size_t hows = 0;
  for (const LayerSharding& row : rows) {
    names = std::max(names, row.layer.size());
    hows = std::max(hows, row.how.size());
  }
  std::string text;
  for (const LayerSharding& row : rows) {
    text += "  " + row.layer + std::string(names - row.layer.size() + 2, ' ') + row.how;
    if (row.bytes_a_step > 0) {
      text += std::string(hows - row.how.size() + 2, ' ') + "sends " + format_traffic(row.bytes_a_step) + " a step";
    }
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
