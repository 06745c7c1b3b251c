// See plan.hpp. Arenas are filled in the order in which backward reaches the layers, so what it completes in succession
// lies side by side: each backward operation adds its piece to the open bucket, which closes when it is large enough.
#include "plan/plan.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <iomanip>
#include <sstream>
#include <utility>

namespace lockstep {

namespace {

constexpr std::size_t line_elements = 16;  // a cache line of floats: shares and parameters begin on one

/// So many slices or fewer gain less than their calls cost (measured, custom_training_mnist on Zen 5: 4 slices on two
/// threads lose 6 %, 8 on one gain 3 %, 32 gain 14 %).
constexpr std::size_t few_slices = 4;

/// The part of Graph::cache_bytes that slices get of which there would be few else: half a second-level cache (measured
/// as above: 10 to 15 %).
constexpr std::size_t small_cache = 5;

/// Requests travel with the metrics. They may wait for so many multiply-adds forward, two seconds on the slowest
/// processors, but not for more than so many steps.
constexpr double longest_wait = 4e9;
constexpr double most_steps = 64;

std::size_t round_up(std::size_t count) { return (count + line_elements - 1) / line_elements * line_elements; }

class Planner {
 public:
  Planner(Graph graph, const PlanOptions& options) : options_(options) { plan_.graph = std::move(graph); }

  Plan run() {
    slice_trunk();
    for (int slice = 0; slice < slices_; ++slice) {
      for (std::size_t i = 0; i < trunk_; ++i) add_forward(plan_.graph.forward[i], slice, slices_);
    }
    for (std::size_t i = trunk_; i < plan_.graph.forward.size(); ++i) add_forward(plan_.graph.forward[i], 0, 1);
    ParameterSpec& metrics = plan_.graph.parameters[plan_.graph.metrics_parameter()];
    place(metrics);
    open_ = {metrics.offset, plan_.elements};
    if (owns_all()) {
      close_bucket();  // while peers go backward, it is on its way
      plan_.metrics_every = static_cast<std::uint64_t>(
          std::clamp(longest_wait / std::max(plan_.graph.multiply_adds, 1.0), 1.0, most_steps));
    }
    // The trunk's backward comes last. Only its last slice completes the gradients that all of them sum up.
    const auto in_trunk = [&](const Operation& operation) {
      return operation.input >= 0 && operation.input < trunk_tensors_;  // what is unpacked has none
    };
    const auto trunk = std::find_if(plan_.graph.backward.begin(), plan_.graph.backward.end(), in_trunk);
    std::for_each(plan_.graph.backward.begin(), trunk, [&](const Operation& operation) { add_backward(operation); });
    for (int slice = 0; slice + 1 < slices_; ++slice) {
      std::for_each(trunk, plan_.graph.backward.end(), [&](Operation operation) {
        operation.slice = slice;
        operation.slices = slices_;
        number(operation);
        plan_.training.push_back(operation);
      });
    }
    std::for_each(trunk, plan_.graph.backward.end(), [&](Operation operation) {
      operation.slice = slices_ - 1;
      operation.slices = slices_;
      add_backward(operation);
    });
    if (open_.begin < open_.end) close_bucket();
    while (!pending_.empty()) update_oldest();
    insert_awaits();
    return std::move(plan_);
  }

 private:
  void number(Operation& operation) {
    operation.id = static_cast<int>(plan_.compute.size());
    plan_.compute.push_back(operation);
  }

  void add_forward(Operation operation, int slice, int slices) {
    operation.slice = slice;
    operation.slices = slices;
    number(operation);
    for (std::vector<Operation>* list : {&plan_.training, &plan_.inference}) append(operation, *list);
    if (operation.sum < 0 || operation.kind == OperationKind::finish_sum) return;
    for (const Operation& exchange : sum_up(operation.sum)) {
      plan_.training.push_back(exchange);
      plan_.inference.push_back(exchange);
    }
  }

  /// What ranks give each other leaves as soon as it is packed; before it is unpacked it must have come.
  static void append(const Operation& operation, std::vector<Operation>& list) {
    const auto add = [&](OperationKind kind) {
      Operation between{.kind = kind};
      between.exchange = operation.exchange;
      list.push_back(between);
    };
    if (operation.kind == OperationKind::unpack) add(OperationKind::take);
    list.push_back(operation);
    if (operation.kind == OperationKind::pack) add(OperationKind::give);
  }

  /// The ranks' sum of a part each, at once: a bucket of its own.
  std::array<Operation, 3> sum_up(int sum) {
    ParameterSpec& parameter = plan_.graph.parameters[sum];
    place(parameter);
    const int bucket = static_cast<int>(plan_.buckets.size());
    plan_.buckets.push_back({parameter.offset, plan_.elements});
    return {{{.kind = OperationKind::contribute, .bucket = bucket},
             {.kind = OperationKind::update, .bucket = bucket},
             {.kind = OperationKind::await, .bucket = bucket}}};
  }

  /// True if no rank shares a variable with others: the model is divided by features, or not at all.
  [[nodiscard]] bool owns_all() const {
    const auto begin = plan_.graph.parameters.begin();
    const auto end = begin + plan_.graph.metrics_parameter();
    return begin != end && std::all_of(begin, end, [](const ParameterSpec& p) { return p.own; });
  }

  /// The operations at the model's beginning that treat each example for itself run through the batch in slices, few
  /// enough examples to keep what they pass on in the cache. Where that makes too few slices, only those up to the
  /// first pooling do, which pass on the most, in smaller ones.
  void slice_trunk() {
    const std::vector<Operation>& forward = plan_.graph.forward;
    std::size_t length = 1;  // gather
    bool convolves = false;
    for (; length < forward.size() && treats_each_alone(forward[length]); ++length) {
      convolves = convolves || forward[length].kind == OperationKind::convolution;
    }
    if (!convolves || length < 3 || slice_first(length, plan_.graph.cache_bytes)) return;
    const auto pools = [](const Operation& operation) { return operation.kind == OperationKind::max_pooling; };
    const auto end = forward.begin() + static_cast<std::ptrdiff_t>(length);
    const auto pooling = std::find_if(forward.begin(), end, pools);
    if (pooling == end) return;
    slice_first(static_cast<std::size_t>(pooling - forward.begin()) + 1, plan_.graph.cache_bytes / small_cache);
  }

  /// False where ranks sum up: they do so once, for all examples.
  [[nodiscard]] static bool treats_each_alone(const Operation& operation) {
    const OperationKind kind = operation.kind;
    if (operation.sum >= 0) return false;
    return kind == OperationKind::convolution || kind == OperationKind::max_pooling ||
           kind == OperationKind::average_pooling || kind == OperationKind::activation ||
           kind == OperationKind::dropout;
  }

  /// Makes the first `length` operations the trunk, unless that makes too few slices to be worth it.
  bool slice_first(std::size_t length, std::size_t cache_bytes) {
    const std::vector<Operation>& forward = plan_.graph.forward;
    std::size_t bytes = 0;  // of an example
    for (std::size_t i = 1; i < length; ++i) {
      bytes += static_cast<std::size_t>(plan_.graph.tensors[forward[i].output].elements()) *
               (plan_.graph.mixed_bfloat16 ? 2 : 4);
    }
    if (bytes == 0) return false;  // a rank that has no channel of it
    std::size_t rows = std::max<std::size_t>(1, cache_bytes / bytes);
    if (rows > 8) rows = rows / 8 * 8;  // kernels like eights
    const std::size_t slices = (rows_of_trunk() + rows - 1) / rows;
    if (cache_bytes == 0 || slices <= few_slices) return false;
    slices_ = static_cast<int>(slices);
    trunk_ = length;
    trunk_tensors_ = forward[length - 1].output;
    share_memory_of_slices();
    return true;
  }

  /// Examples that the model's beginning is computed for on this rank.
  [[nodiscard]] std::size_t rows_of_trunk() const {
    const Graph& graph = plan_.graph;
    return graph.forward.front().by_examples ? graph.rows_of(graph.capacity, graph.rank).size() : graph.capacity;
  }

  /// What a convolution gives to a pooling nobody reads again: backward of the pooling knows relu's derivative from who
  /// won. So its values, and its gradients too, need memory for one slice only, which then stays in the cache.
  void share_memory_of_slices() {
    const auto slices = static_cast<std::size_t>(slices_);
    for (std::size_t i = 1; i + 1 < trunk_; ++i) {
      const Operation& operation = plan_.graph.forward[i];
      const bool flat =
          operation.activation == ActivationFunction::relu || operation.activation == ActivationFunction::linear;
      const bool pooled = plan_.graph.forward[i + 1].kind == OperationKind::max_pooling;
      if (operation.kind != OperationKind::convolution || !flat || !pooled) continue;
      plan_.graph.tensors[operation.output].passing_rows = (rows_of_trunk() + slices - 1) / slices;
    }
  }

  void place(ParameterSpec& parameter) {
    std::size_t& elements = parameter.own ? plan_.own_elements : plan_.elements;
    parameter.offset = elements;
    elements += round_up(parameter.storage);
  }

  /// A layer's parameters, the kernel last, so that its chunks can follow one another; of the loss, the metric sums.
  [[nodiscard]] std::vector<ParameterSpec*> parameters_of(const Operation& operation) {
    std::vector<ParameterSpec*> found;
    if (operation.parameter < 0) return found;
    if (operation.kind == OperationKind::loss) return {&plan_.graph.parameters[operation.parameter]};
    const std::size_t count = plan_.graph.layers[operation.layer].parameters.size();
    for (std::size_t i = count; i-- > 0;) found.push_back(&plan_.graph.parameters[operation.parameter + i]);
    return found;
  }

  void add_backward(const Operation& operation) {
    const std::vector<ParameterSpec*> parameters = parameters_of(operation);
    const std::size_t begin = plan_.elements;
    const std::size_t own_begin = plan_.own_elements;
    for (ParameterSpec* parameter : parameters) place(*parameter);
    if (operation.kind != OperationKind::dense_backward) {
      emit(operation, {begin, plan_.elements});
      update_own({own_begin, plan_.own_elements});
      if (operation.kind != OperationKind::offer_gradient) return;
      for (const Operation& exchange : sum_up(operation.sum)) plan_.training.push_back(exchange);
      return;
    }
    // Chunks go from the last input feature to the first: the next forward product begins with the first ones, which
    // are then still in the cache. The bias goes with the first feature.
    const ParameterSpec& kernel = *parameters.back();
    const std::int64_t units = kernel.info.shape[1];
    std::size_t end = kernel.own ? plan_.own_elements : plan_.elements;
    for (const auto& [first, last] : chunks_of(operation.rows_end, units)) {
      Operation chunk = operation;
      chunk.rows_begin = first;
      chunk.rows_end = last;
      const std::size_t all = kernel.own ? own_begin : begin;
      const std::size_t chunk_begin = first == 0 ? all : kernel.offset + static_cast<std::size_t>(first * units);
      emit(chunk, kernel.own ? BucketRange{} : BucketRange{chunk_begin, end});
      if (kernel.own) update_own({chunk_begin, end});
      end = chunk_begin;
    }
  }

  /// Nobody waits for it and nobody reads it but this rank: it is updated while it is in the cache.
  void update_own(const BucketRange& range) {
    if (range.begin == range.end) return;
    plan_.training.push_back({.kind = OperationKind::update_own, .bucket = static_cast<int>(plan_.own_ranges.size())});
    plan_.own_ranges.push_back(range);
  }

  /// Cuts [0, rows) into chunks of whole cache lines, the last rows first; a small rest joins the last chunk.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> chunks_of(std::int64_t rows,
                                                                             std::int64_t units) const {
    if (rows == 0 || units == 0) return {{0, rows}};  // of a divided layer, nothing is this rank's
    const auto row_bytes = static_cast<std::size_t>(units) * sizeof(float);
    const auto size = static_cast<std::int64_t>(
        std::max(line_elements, options_.chunk_bytes / row_bytes / line_elements * line_elements));
    std::vector<std::pair<std::int64_t, std::int64_t>> chunks;
    for (std::int64_t begin = 0; begin < rows; begin += size) chunks.emplace_back(begin, std::min(begin + size, rows));
    if (chunks.size() > 1 && chunks.back().second - chunks.back().first < size / 4) {
      chunks.pop_back();
      chunks.back().second = rows;
    }
    std::reverse(chunks.begin(), chunks.end());
    return chunks;
  }

  /// Appends an operation after which the gradient of `piece` is complete. A bucket takes pieces that touch.
  void emit(Operation operation, const BucketRange& piece) {
    number(operation);
    if (open_.begin < open_.end && piece.begin < piece.end && piece.begin != open_.end) close_bucket();
    append(operation, plan_.training);
    if (piece.begin < piece.end) open_ = {open_.begin < open_.end ? open_.begin : piece.begin, piece.end};
    if ((open_.end - open_.begin) * sizeof(float) >= options_.bucket_bytes) close_bucket();
  }

  void close_bucket() {
    const int bucket = static_cast<int>(plan_.buckets.size());
    const std::size_t metrics = plan_.graph.parameters[plan_.graph.metrics_parameter()].offset;
    if (open_.begin <= metrics && metrics < open_.end) plan_.metrics_bucket = plan_.buckets.size();
    plan_.buckets.push_back(open_);
    open_ = {};
    plan_.training.push_back({.kind = OperationKind::contribute, .bucket = bucket});
    pending_.push_back(bucket);
    if (pending_.size() > options_.update_lag) update_oldest();
  }

  void update_oldest() {
    plan_.training.push_back({.kind = OperationKind::update, .bucket = pending_.front()});
    pending_.pop_front();
  }

  /// Before an operation reads weights, all buckets they lie in must have been updated.
  void insert_awaits() {
    std::vector<Operation> with_awaits;
    std::vector<bool> awaited(plan_.buckets.size(), false);
    for (const Operation& operation : plan_.training) {
      for (const ParameterSpec* parameter : parameters_of(operation)) {
        if (parameter->own) continue;
        for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
          const BucketRange& bucket = plan_.buckets[b];
          const bool touches = parameter->offset < bucket.end && parameter->offset + parameter->storage > bucket.begin;
          if (!touches || awaited[b]) continue;
          awaited[b] = true;
          with_awaits.push_back({.kind = OperationKind::await, .bucket = static_cast<int>(b)});
        }
      }
      with_awaits.push_back(operation);
    }
    plan_.training = std::move(with_awaits);
  }

  PlanOptions options_;
  Plan plan_;
  std::size_t trunk_ = 0;   ///< operations of the trunk, gather included
  int trunk_tensors_ = -1;  ///< inputs of the trunk's operations are tensors below this one
  int slices_ = 1;
  BucketRange open_;  ///< the bucket being filled
  std::deque<int> pending_;
};

std::string extents(const TensorSpec& tensor) {
  return std::to_string(tensor.height) + "x" + std::to_string(tensor.width) + "x" + std::to_string(tensor.channels) +
         (tensor.block == tensor.channels ? "" : " in blocks of " + std::to_string(tensor.block)) +
         (tensor.type == ElementType::bfloat16 ? " bfloat16" : " float32");
}

std::string line_of(const Operation& operation, const Graph& graph) {
  std::string line(name_of(operation.kind));
  if (operation.layer >= 0) line += " " + graph.layers[operation.layer].name;
  if (operation.input >= 0) line += " t" + std::to_string(operation.input);
  if (operation.output >= 0) line += " -> t" + std::to_string(operation.output);
  if (operation.kind == OperationKind::dense_backward) {
    line += " rows " + std::to_string(operation.rows_begin) + ".." + std::to_string(operation.rows_end);
  }
  if (operation.activation != ActivationFunction::linear) line += " " + std::string(name_of(operation.activation));
  if (operation.input_gradient) {
    line += " (input gradient";
    if (operation.input_activation != ActivationFunction::linear) {
      line += " through " + std::string(name_of(operation.input_activation));
    }
    line += ")";
  }
  if (operation.slices > 1)
    line += " slice " + std::to_string(operation.slice) + "/" + std::to_string(operation.slices);
  if (operation.by_examples) line += " by examples";
  if (operation.exchange >= 0) line += " exchange " + std::to_string(operation.exchange);
  if (operation.sum >= 0) line += " summed in " + graph.parameters[operation.sum].name;
  if (operation.bucket >= 0) line += " bucket " + std::to_string(operation.bucket);
  return line;
}

/// `common`: what the ranks of a divided model have in common, instead of this rank's.
std::string layout_of(const Plan& plan, bool common = false) {
  const Graph& graph = plan.graph;
  std::ostringstream input;
  input << std::setprecision(17) << "input bytes * " << graph.input.byte_scale << ", * " << graph.input.scale << " + "
        << graph.input.offset << '\n';
  std::string text = input.str() + plan.division;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (common && graph.tensors[t].whole_channels > 0) continue;
    text += "tensor t" + std::to_string(t) + " " + graph.tensors[t].name + " " + extents(graph.tensors[t]) + "\n";
  }
  for (const ParameterSpec& parameter : graph.parameters) {
    if (common && parameter.own) continue;
    text += "parameter " + parameter.name + " " + parameter.info.shape.to_string() + " at " +
            std::to_string(parameter.offset) + ", " + std::to_string(parameter.storage) + " elements" +
            (parameter.own ? " of its own\n" : "\n");
  }
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    text += "bucket " + std::to_string(b) + " [" + std::to_string(plan.buckets[b].begin) + ", " +
            std::to_string(plan.buckets[b].end) + ")\n";
  }
  return text;
}

}  // namespace

std::string Plan::to_string() const {
  std::string text = layout_of(*this);
  for (const Operation& operation : training) text += line_of(operation, graph) + "\n";
  return text;
}

std::string Plan::digest() const {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : layout_of(*this, !division.empty()))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, hash >>= 4U) {
    *digit = "0123456789abcdef"[hash & 15U];
  }
  return digits;
}

std::vector<std::size_t> Plan::operations_of_step(bool sums_metrics) const {
  const auto sums_them = [this](const Operation& operation) {
    const OperationKind kind = operation.kind;
    return (kind == OperationKind::contribute || kind == OperationKind::update || kind == OperationKind::await) &&
           static_cast<std::size_t>(operation.bucket) == metrics_bucket;
  };
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < training.size(); ++i) {
    if (sums_metrics || !sums_them(training[i])) places.push_back(i);
  }
  return places;
}

std::vector<BucketRange> Plan::sums_that_are_no_gradients() const {
  std::vector<BucketRange> ranges;
  for (const ParameterSpec& parameter : graph.parameters) {
    if (parameter.own || parameter.rule == UpdateRule::optimizer) continue;
    ranges.push_back({parameter.offset, parameter.offset + round_up(parameter.storage)});
  }
  return ranges;
}

Plan make_plan(Graph graph, const PlanOptions& options) { return Planner(std::move(graph), options).run(); }

}  // namespace lockstep
