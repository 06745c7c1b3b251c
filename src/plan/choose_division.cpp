// See division.hpp: which ways the operations of a chain take. A walk along the chain that keeps, for each state in
// which a value can be passed on, the cheapest way to it (A. Viterbi, 1967).
#include "plan/division.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep {

namespace {

/// What an operation passes on: a value and how its gradient will come back.
enum State : std::size_t {
  undivided,      ///< whole, gradient whole; nothing was divided so far
  part_gradient,  ///< whole, of the gradient a part
  slice,          ///< a slice of the channels, and its gradient
  summed,         ///< whole, gradient whole, behind a division
  own_examples,   ///< whole, of a rank's examples only, and so the gradient; nothing was divided otherwise so far
  states
};

struct Step {
  double seconds = std::numeric_limits<double>::infinity();
  State from = undivided;
  Way way = Way::repeated;
};

bool is_weighted(const Operation& operation) {
  return operation.kind == OperationKind::convolution || operation.kind == OperationKind::dense;
}

/// Acts on each channel alone.
bool passes_slices(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::max_pooling:
    case OperationKind::average_pooling:
    case OperationKind::dropout:
    case OperationKind::batch_normalization:
    case OperationKind::activation: return true;
    default: return false;
  }
}

/// False where a Reshape or Flatten in between has made other channels of them.
bool keeps_channels(const Graph& graph, const Operation& operation) {
  const TensorSpec& input = graph.tensors[operation.input];
  return input.alias < 0 || graph.tensors[input.alias].channels == input.channels;
}

class Chooser {
 public:
  Chooser(const Graph& graph, int ranks, std::size_t batch, const Speeds& speeds)
      : graph_(graph), ranks_(ranks), batch_(static_cast<double>(batch)), speeds_(speeds) {}

  std::optional<FeatureDivision> run() {
    const std::size_t count = graph_.forward.size();
    steps_.resize(count);
    steps_[0][undivided] = {0, undivided, Way::repeated};
    steps_[0][part_gradient] = {0, part_gradient, Way::repeated};
    steps_[0][own_examples] = {0, own_examples, Way::examples};
    for (std::size_t i = 1; i < count; ++i) {
      for (const State from : {undivided, part_gradient, slice, summed, own_examples}) {
        if (std::isfinite(steps_[i - 1][from].seconds)) extend(i, from);
      }
    }
    if (!std::isfinite(steps_[count - 1][summed].seconds)) return std::nullopt;
    FeatureDivision division{ranks_, std::vector<Way>(count), {}, 0};
    State state = summed;
    for (std::size_t i = count; i-- > 0;) {
      division.ways[i] = steps_[i][state].way;
      state = steps_[i][state].from;
    }
    find_axes(division);
    division.estimated_seconds = steps_[count - 1][summed].seconds;
    return division;
  }

  /// The same chain of ways again, if it is one that could have been chosen.
  std::optional<FeatureDivision> follow(const std::string& code) {
    if (code.size() != graph_.forward.size()) return std::nullopt;
    wanted_ = code;
    return run();
  }

  /// Nothing is divided: every rank computes all, and nothing but the metrics travels.
  [[nodiscard]] FeatureDivision undivided_model() const {
    FeatureDivision division{ranks_, std::vector<Way>(graph_.forward.size(), Way::repeated), {}, 0};
    find_axes(division);
    for (const Operation& operation : graph_.forward) {
      if (operation.input >= 0 && operation.kind != OperationKind::loss)
        division.estimated_seconds += work(operation, 1);
    }
    return division;
  }

  /// Every rank computes its share of the examples, and all gradients are summed up.
  [[nodiscard]] double by_examples() const {
    double seconds = 0;
    for (const Operation& operation : graph_.forward) {
      if (operation.input < 0 || operation.kind == OperationKind::loss) continue;
      seconds += work(operation, 1.0 / ranks_) + all_reduce(static_cast<double>(trainable_of(operation)));
    }
    return seconds;
  }

 private:
  void extend(std::size_t i, State from) {
    const Operation& operation = graph_.forward[i];
    const bool weighted = is_weighted(operation);
    if (operation.kind == OperationKind::loss) {
      if (from == summed) offer(i, from, summed, Way::repeated, 0);
      return;
    }
    if (from == undivided || from == summed) offer(i, from, from, Way::repeated, work(operation, 1));
    if (from == part_gradient || from == summed) {
      // Behind a sum a part of the gradient has to be made whole first.
      const double sum = from == summed ? all_reduce(batch_ * elements_of(operation.input)) : 0;
      offer(i, from, part_gradient, Way::partial,
            sum + work(operation, 1) + all_reduce(static_cast<double>(trainable_of(operation))));
      if (weighted) offer(i, from, slice, Way::columns, sum + work(operation, share_of(operation.output)));
    }
    if (from == own_examples) {
      offer(i, from, own_examples, Way::examples,
            work(operation, 1.0 / ranks_) + all_reduce(static_cast<double>(trainable_of(operation))));
      // From the second layer on: the input itself is everybody's, and need not be handed over.
      if (weighted && i > 1) {
        offer(i, from, summed, Way::rows,
              2 * all_to_all(batch_ * elements_of(operation.input)) + work_on_slice(operation) +
                  all_reduce(batch_ * elements_of(operation.output)));
      }
    }
    if (from == slice && keeps_channels(graph_, operation)) {
      if (passes_slices(operation)) {
        offer(i, from, slice, Way::columns, work(operation, share_of(operation.output)));
      } else if (weighted) {
        offer(i, from, summed, Way::rows,
              work_on_slice(operation) + all_reduce(batch_ * elements_of(operation.output)));
      }
    }
  }

  void offer(std::size_t i, State from, State to, Way way, double seconds) {
    if (!wanted_.empty() && wanted_[i] != way_letters[static_cast<std::size_t>(way)]) return;
    const double total = steps_[i - 1][from].seconds + seconds;
    if (total < steps_[i][to].seconds) steps_[i][to] = {total, from, way};
  }

  [[nodiscard]] double elements_of(int tensor) const { return static_cast<double>(graph_.tensors[tensor].elements()); }

  /// The largest part of a tensor that a rank holds; kernels take channels in eights at least.
  [[nodiscard]] double share_of(int tensor) const {
    const std::int64_t channels = graph_.tensors[tensor].channels;
    const auto most = static_cast<double>(channels_of(channels, 0, ranks_).size());
    return std::min(1.0, std::max(most, graph_.tensors[tensor].height > 1 ? 8.0 : 1.0) / static_cast<double>(channels));
  }

  [[nodiscard]] std::int64_t trainable_of(const Operation& operation) const {
    std::int64_t count = 0;
    if (operation.parameter < 0) return 0;
    for (const ParameterInfo& parameter : graph_.layers[operation.layer].parameters) {
      if (parameter.trainable) count += parameter.shape.elements();
    }
    return count;
  }

  /// Seconds of `share` of an operation, forward and backward and with its update.
  [[nodiscard]] double work(const Operation& operation, double share) const {
    const double flops = (operation.input == 0 ? 4 : 6) * batch_ * multiply_adds(graph_, operation);
    double bytes = 3 * passed_on(operation);
    if (is_weighted(operation)) {
      const ParameterInfo& kernel = graph_.layers[operation.layer].parameters.front();
      bytes += 3 * 4 * static_cast<double>(kernel.shape.elements());
    }
    return share * (flops / speeds_.flops_per_second + bytes / speeds_.memory_per_second);
  }

  /// The same of a layer that takes a slice of its input's channels: its outputs are whole, and they pass through
  /// memory again when they have been summed up. (Those of a Dense layer are too few to leave the cache.)
  [[nodiscard]] double work_on_slice(const Operation& operation) const {
    const double share = share_of(operation.input);
    if (operation.kind == OperationKind::dense) return work(operation, share);
    const double outputs = passed_on(operation) / speeds_.memory_per_second;
    return work(operation, share) + 3 * (1 - share) * outputs + 2 * outputs;
  }

  /// Bytes of an operation's outputs.
  [[nodiscard]] double passed_on(const Operation& operation) const {
    return 4 * batch_ * elements_of(operation.output);
  }

  [[nodiscard]] double all_reduce(double elements) const {
    if (elements == 0) return 0;
    const double parts = 2.0 * (ranks_ - 1) / ranks_;
    return 2 * speeds_.latency + parts * 4 * elements / speeds_.bytes_per_second;
  }

  /// Each rank sends each other one its part of what it has.
  [[nodiscard]] double all_to_all(double elements) const {
    const double parts = static_cast<double>(ranks_ - 1) / ranks_ / ranks_;
    return speeds_.latency + parts * 4 * elements / speeds_.bytes_per_second;
  }

  void find_axes(FeatureDivision& division) const {
    division.variables.resize(static_cast<std::size_t>(graph_.metrics_parameter()));
    for (std::size_t i = 0; i < division.ways.size(); ++i) {
      const Operation& operation = graph_.forward[i];
      if (operation.parameter < 0 || operation.kind == OperationKind::loss) continue;
      const std::vector<ParameterInfo>& parameters = graph_.layers[operation.layer].parameters;
      for (std::size_t k = 0; k < parameters.size(); ++k) {
        VariableAxis& variable = division.variables[static_cast<std::size_t>(operation.parameter) + k];
        const Shape& shape = parameters[k].shape;
        const std::int64_t last = shape[shape.rank() - 1];
        if (division.ways[i] == Way::columns) variable = {shape.elements() / last, last, 1};
        if (division.ways[i] == Way::rows && k == 0) {  // a Dense kernel's inputs are pixels times channels
          const std::int64_t channels = graph_.tensors[operation.input].channels;
          variable = {shape.elements() / last / channels, channels, last};
        }
      }
    }
  }

  const Graph& graph_;
  int ranks_;
  double batch_;
  const Speeds& speeds_;
  std::string wanted_;  ///< the code of the only division that is asked for; empty: the cheapest
  std::vector<std::array<Step, states>> steps_;
};

}  // namespace

std::optional<FeatureDivision> divide_by_features(const Graph& whole, int ranks, std::size_t batch,
                                                  const Speeds& speeds) {
  return Chooser(whole, ranks, batch, speeds).run();
}

FeatureDivision divide_nothing(const Graph& whole, int ranks, std::size_t batch, const Speeds& speeds) {
  return Chooser(whole, ranks, batch, speeds).undivided_model();
}

std::optional<FeatureDivision> division_of(const Graph& whole, int ranks, const std::string& code) {
  const Speeds speeds;
  if (FeatureDivision nothing = divide_nothing(whole, ranks, 1, speeds); nothing.code() == code) return nothing;
  return Chooser(whole, ranks, 1, speeds).follow(code);
}

double estimate_by_examples(const Graph& whole, int ranks, std::size_t batch, const Speeds& speeds) {
  return Chooser(whole, ranks, batch, speeds).by_examples();
}

std::string why_not_by_features(const Graph& whole) {
  std::string why = "it has no layer with weights";
  for (std::size_t i = 0; i < whole.forward.size(); ++i) {
    if (!is_weighted(whole.forward[i])) continue;
    const std::string divided = "the channels of layer '" + whole.layers[whole.forward[i].layer].name + "'";
    for (std::size_t next = i + 1; next < whole.forward.size(); ++next) {
      const Operation& operation = whole.forward[next];
      const std::string& name = whole.layers[operation.layer].name;
      if (operation.kind == OperationKind::loss) {
        why = divided + " are the model's outputs, and the loss needs all of them: behind a divided layer there must " +
              "be a Dense or Conv2D layer that sums up what the workers hold";
        break;
      }
      if (!keeps_channels(whole, operation)) {
        why = "layer '" + name + "' takes " + divided + " in another shape";
        break;
      }
      if (passes_slices(operation)) continue;
      why = "layer '" + name + "' needs all of " + divided;
      break;
    }
  }
  return why;
}

}  // namespace lockstep
