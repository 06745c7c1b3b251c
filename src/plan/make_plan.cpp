// See plan.hpp. Arenas are filled in the order in which backward reaches the layers, so what it completes in succession
// lies side by side: each backward operation adds its piece to the open bucket, which closes when it is large enough.
#include "plan/plan.hpp"

#include "plan/trunk.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

/// Requests travel with the metrics. They may wait for so much work, two seconds on the slowest processors, but not for
/// more than so many steps.
constexpr double longest_wait = 4e9;
constexpr double most_steps = 256;

class Planner {
 public:
  Planner(Graph graph, const PlanOptions& options) : options_(options) { plan_.graph = std::move(graph); }

  Plan run() {
    const Trunk trunk = slice_trunk(plan_.graph);
    for (int slice = 0; slice < trunk.slices; ++slice) {
      for (std::size_t i = 0; i < trunk.length; ++i) add_forward(plan_.graph.forward[i], slice, trunk.slices);
    }
    for (std::size_t i = trunk.length; i < plan_.graph.forward.size(); ++i) add_forward(plan_.graph.forward[i], 0, 1);
    ParameterSpec& metrics = plan_.graph.parameters[plan_.graph.metrics_parameter()];
    place(metrics);
    open_ = {metrics.offset, plan_.elements};
    if (owns_all()) {
      close_bucket();  // while peers go backward, it is on its way
      plan_.metrics_every =
          static_cast<std::uint64_t>(std::clamp(longest_wait / std::max(plan_.graph.work, 1.0), 1.0, most_steps));
    }
    // The trunk's backward comes last. Only its last slice completes the gradients that all of them sum up.
    const auto in_trunk = [&](const Operation& operation) {
      return operation.input >= 0 && operation.input < trunk.output;  // what is unpacked has none
    };
    const auto first_of_trunk = std::find_if(plan_.graph.backward.begin(), plan_.graph.backward.end(), in_trunk);
    std::for_each(plan_.graph.backward.begin(), first_of_trunk,
                  [&](const Operation& operation) { add_backward(operation); });
    for (int slice = 0; slice + 1 < trunk.slices; ++slice) {
      std::for_each(first_of_trunk, plan_.graph.backward.end(), [&](Operation operation) {
        operation.slice = slice;
        operation.slices = trunk.slices;
        number(operation);
        plan_.training.push_back(operation);
      });
    }
    std::for_each(first_of_trunk, plan_.graph.backward.end(), [&](Operation operation) {
      operation.slice = trunk.slices - 1;
      operation.slices = trunk.slices;
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

  void place(ParameterSpec& parameter) {
    std::size_t& elements = parameter.own ? plan_.own_elements : plan_.elements;
    parameter.offset = elements;
    elements += elements_in_arena(parameter);
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
  BucketRange open_;  ///< the bucket being filled
  std::deque<int> pending_;
};

}  // namespace

Plan make_plan(Graph graph, const PlanOptions& options) { return Planner(std::move(graph), options).run(); }

}  // namespace lockstep
