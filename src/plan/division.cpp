// See division.hpp.
#include "plan/division.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {

Channels channels_of(std::int64_t count, int rank, int ranks) noexcept {
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

std::string FeatureDivision::code() const {
  std::string letters;
  for (const Way way : ways) letters += way_letters[static_cast<std::size_t>(way)];
  return letters;
}

bool FeatureDivision::divides_anything() const {
  return std::any_of(ways.begin(), ways.end(), [](Way way) { return way != Way::repeated; });
}

double multiply_adds(const Graph& whole, const Operation& operation) {
  const bool convolves = operation.kind == OperationKind::convolution;
  if (!convolves && operation.kind != OperationKind::dense) return 0;
  const TensorSpec& output = whole.tensors[operation.output];
  const double pixels = convolves ? static_cast<double>(output.height * output.width) : 1;
  return pixels * static_cast<double>(whole.layers[operation.layer].parameters.front().shape.elements());
}

double work_of(const Graph& whole) {
  constexpr double work_of_element = 8;
  double work = 0;
  for (const Operation& operation : whole.forward) {
    work += multiply_adds(whole, operation);
    if (operation.output >= 0)
      work += work_of_element * static_cast<double>(whole.tensors[operation.output].elements());
  }
  return work;
}

std::string FeatureDivision::to_string(const Graph& whole) const {
  std::string text = std::to_string(ranks) + " ranks by features\n";
  for (std::size_t i = 0; i < ways.size(); ++i) {
    constexpr const char* names[] = {"repeated", "partial", "columns", "rows", "examples"};
    const Operation& operation = whole.forward[i];
    text += std::string(name_of(operation.kind)) + " " + whole.layers[operation.layer].name + " " +
            names[static_cast<std::size_t>(ways[i])] + "\n";
  }
  return text;
}

namespace {

/// Makes one rank's graph out of the whole one.
class Part {
 public:
  Part(const Graph& whole, const FeatureDivision& division, int rank, std::size_t batch)
      : whole_(whole), division_(division), rank_(rank), batch_(static_cast<std::int64_t>(batch)), graph_(whole) {
    graph_.rank = rank;
    graph_.ranks = division.ranks;
  }

  Graph run() {
    for (std::size_t i = 0; i < whole_.forward.size(); ++i) {
      if (division_.ways[i] == Way::columns) divide_tensor(whole_.forward[i].output);
    }
    for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
      const int root = graph_.tensors[t].alias;
      if (root >= 0 && graph_.tensors[root].whole_channels > 0) divide_tensor(static_cast<int>(t));
    }
    for (std::size_t i = 0; i < whole_.forward.size(); ++i) divide_parameters(whole_.forward[i], division_.ways[i]);
    divide_forward();
    divide_backward();
    graph_.work = static_cast<double>(batch_) * work_of(whole_);
    return std::move(graph_);
  }

 private:
  void divide_tensor(int t) {
    TensorSpec& tensor = graph_.tensors[t];
    const Channels mine = channels_of(tensor.channels, rank_, division_.ranks);
    tensor.first_channel = mine.begin;
    tensor.whole_channels = tensor.channels;
    tensor.channels = mine.size();
  }

  void divide_parameters(const Operation& operation, Way way) {
    if (operation.parameter < 0 || operation.kind == OperationKind::loss) return;
    LayerInfo& layer = graph_.layers[operation.layer];
    for (std::size_t i = 0; i < layer.parameters.size(); ++i) {
      const std::size_t p = static_cast<std::size_t>(operation.parameter) + i;
      ParameterInfo& info = layer.parameters[i];
      std::vector<std::int64_t> extents(info.shape.extents().begin(), info.shape.extents().end());
      if (division_.variables[p].axis > 0) {
        if (way == Way::rows) {
          const VariableAxis& kernel = division_.variables[p];
          std::int64_t& inputs = extents[extents.size() - 2];  // of a Dense kernel pixels times channels
          inputs = inputs / kernel.axis * channels_of(kernel.axis, rank_, division_.ranks).size();
        } else {
          extents.back() = channels_of(extents.back(), rank_, division_.ranks).size();
        }
      }
      info.shape = Shape(std::move(extents));
      graph_.parameters[p].info = info;
      // Moving statistics are computed forward, where nothing is partial, but by examples each rank has its own.
      graph_.parameters[p].own = way != Way::examples && (way != Way::partial || !info.trainable);
      graph_.parameters[p].divided = division_.variables[p].axis > 0;
    }
  }

  /// Where ranks sum up a tensor, or its gradient.
  int add_sum(int tensor, const std::string& what) {
    const Shape shape{batch_ * graph_.tensors[tensor].elements()};
    graph_.parameters.push_back({.name = graph_.tensors[tensor].name + "/" + what,
                                 .info = {what, shape, Initializer::zeros, false},
                                 .rule = UpdateRule::assign});
    ++graph_.sums;
    return static_cast<int>(graph_.parameters.size()) - 1;
  }

  void divide_forward() {
    std::vector<Operation> forward;
    for (std::size_t i = 0; i < whole_.forward.size(); ++i) {
      Operation operation = whole_.forward[i];
      operation.by_examples = division_.ways[i] == Way::examples;
      if (division_.ways[i] == Way::rows) {
        if (division_.ways[i - 1] == Way::examples) hand_over(operation, forward);
        operation.sum = add_sum(operation.output, "sum");
        forward.push_back(operation);
        operation.kind = OperationKind::finish_sum;
        operation.input = -1;
      }
      forward.push_back(operation);
    }
    graph_.forward = std::move(forward);
  }

  /// Where examples end and features begin: what these rows take becomes a tensor of its own.
  void hand_over(Operation& rows, std::vector<Operation>& forward) {
    handed_over_ = rows.input;
    taken_ = static_cast<int>(graph_.tensors.size());
    TensorSpec tensor = whole_.tensors[handed_over_];
    tensor.name += "/slice";
    tensor.alias = -1;
    tensor.keras_order = false;
    graph_.tensors.push_back(std::move(tensor));
    divide_tensor(taken_);
    graph_.exchanges.push_back(exchange_of(whole_.tensors[handed_over_]));
    rows.input = taken_;
    Operation pack{.kind = OperationKind::pack, .layer = rows.layer, .input = handed_over_};
    pack.by_examples = true;
    pack.exchange = 0;
    forward.push_back(pack);
    Operation unpack{.kind = OperationKind::unpack, .layer = rows.layer, .output = taken_};
    unpack.exchange = 0;
    forward.push_back(unpack);
  }

  /// The gradient goes the same way back.
  void hand_back(int layer, std::vector<Operation>& backward) {
    ExchangeSpec exchange = graph_.exchanges.front();
    std::swap(exchange.given, exchange.taken);
    graph_.exchanges.push_back(std::move(exchange));
    Operation pack{.kind = OperationKind::pack, .layer = layer, .input = taken_};
    pack.exchange = 1;
    backward.push_back(pack);
    Operation unpack{.kind = OperationKind::unpack, .layer = layer, .output = handed_over_};
    unpack.by_examples = true;
    unpack.exchange = 1;
    backward.push_back(unpack);
  }

  [[nodiscard]] ExchangeSpec exchange_of(const TensorSpec& tensor) const {
    const auto channels = [&](int rank) { return channels_of(tensor.channels, rank, division_.ranks).size(); };
    const auto block = [&](int of_examples, int of_channels) {
      const std::size_t rows = graph_.rows_of(static_cast<std::size_t>(batch_), of_examples).size();
      return rows * static_cast<std::size_t>(tensor.height * tensor.width * channels(of_channels));
    };
    ExchangeSpec exchange;
    for (int rank = 0; rank < division_.ranks; ++rank) {
      exchange.channels.push_back(channels(rank));
      exchange.given.push_back(block(rank_, rank));
      exchange.taken.push_back(block(rank, rank_));
    }
    return exchange;
  }

  /// Behind an operation that gives back a part of its input's gradient, where who made the input needs all of it, the
  /// ranks sum it up.
  void divide_backward() {
    std::vector<Operation> backward;
    for (Operation operation : whole_.backward) {
      operation.by_examples = division_.ways[place_in_forward(operation.output)] == Way::examples;
      const bool gives_part = operation.input_gradient && divides_gradient(operation);
      const bool was_handed_over = handed_over_ >= 0 && operation.input == handed_over_;
      if (was_handed_over) operation.input = taken_;
      if (operation.kind == OperationKind::dense_backward) {
        operation.rows_end = graph_.tensors[operation.input].elements();
      }
      backward.push_back(operation);
      if (was_handed_over && operation.input_gradient) hand_back(operation.layer, backward);
      if (!gives_part) continue;
      Operation exchange{.kind = OperationKind::offer_gradient,
                         .layer = operation.layer,
                         .input = operation.input,
                         .output = operation.input,
                         .sum = add_sum(operation.input, "gradient")};
      backward.push_back(exchange);
      exchange.kind = OperationKind::take_gradient;
      backward.push_back(exchange);
    }
    graph_.backward = std::move(backward);
  }

  [[nodiscard]] std::size_t place_in_forward(int output) const {
    const auto writes = [&](const Operation& operation) { return operation.output == output; };
    const auto found = std::find_if(whole_.forward.begin(), whole_.forward.end(), writes);
    return static_cast<std::size_t>(found - whole_.forward.begin());
  }

  [[nodiscard]] bool divides_gradient(const Operation& backward) const {
    if (backward.output < 0) return false;  // the loss
    const Way mine = division_.ways[place_in_forward(backward.output)];
    const int root = whole_.tensors[backward.input].alias;
    const Way before = division_.ways[place_in_forward(root >= 0 ? root : backward.input)];
    const bool takes_whole = before == Way::repeated || before == Way::rows;
    return takes_whole && (mine == Way::columns || mine == Way::partial);
  }

  const Graph& whole_;
  const FeatureDivision& division_;
  int rank_;
  std::int64_t batch_;
  Graph graph_;
  int handed_over_ = -1;  ///< the last tensor by examples
  int taken_ = -1;        ///< and this rank's channels of it, of everybody's examples
};

/// True if two ranks' graphs hold the tensors that both hold whole in the same layout.
bool alike(const Graph& a, const Graph& b) {
  for (std::size_t t = 0; t < a.tensors.size(); ++t) {
    if (a.tensors[t].whole_channels > 0) continue;
    if (a.tensors[t].block != b.tensors[t].block || a.tensors[t].blocked != b.tensors[t].blocked) return false;
  }
  return true;
}

}  // namespace

Graph part_of(const Graph& whole, const FeatureDivision& division, int rank, std::size_t batch,
              const Backend& backend) {
  Graph mine = Part(whole, division, rank, batch).run();
  backend.lay_out(mine, batch);
  // Ranks that hold more channels or fewer may like other layouts, but what they hold in common must lie alike. The
  // first rank has the most channels, the last the least, and in between there is nothing else.
  for (const int other : {0, division.ranks - 1}) {
    Graph others = Part(whole, division, other, batch).run();
    backend.lay_out(others, batch);
    if (alike(mine, others)) continue;
    mine = Part(whole, division, rank, batch).run();
    mine.plain = true;
    backend.lay_out(mine, batch);
    break;
  }
  return mine;
}

}  // namespace lockstep
