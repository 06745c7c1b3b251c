// See plan.hpp. Arenas are laid out in the order of backward, so gradients that are completed one after another are
// adjacent in memory. Each backward operation adds its range to the open bucket, which is closed when it is large
// enough.
#include "plan/plan.hpp"

#include "graph/synchronize_statistics.hpp"
#include "plan/microbatching.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

/// Stop requests are all-reduced with the metrics, so these limits bound how long a request waits.
constexpr double max_deferred_work = 4e9;     // multiply-adds: two seconds on the slowest processors
constexpr double max_metrics_interval = 256;  // steps

/// Whether a rank knows a part of the regularizers' penalty only, so that its own metrics are not those of all.
bool has_sharded_penalty(const Graph& graph) {
  return std::ranges::any_of(graph.parameters, [](const ParameterSpec& parameter) {
    return parameter.rule == UpdateRule::optimizer && parameter.is_sharded && !parameter.info.regularizer.is_none();
  });
}

class Planner {
 public:
  Planner(Graph graph, const PlanOptions& options) : options_(options) { plan_.graph = std::move(graph); }

  Plan run() {
    if (options_.ranks > 1) synchronize_statistics(plan_.graph);
    const std::vector<Segment> segments = plan_segments(plan_.graph);
    for (const Segment& segment : segments) {
      for (std::size_t microbatch = 0; microbatch < segment.microbatches; ++microbatch) {
        for (std::size_t i = segment.begin; i < segment.end; ++i)
          add_forward(plan_.graph.forward[i], {microbatch, segment.microbatches});
      }
    }
    ParameterSpec& metrics = plan_.graph.parameters[plan_.graph.metrics_parameter()];
    place(metrics);
    open_ = {metrics.offset, plan_.elements};
    if (all_parameters_local()) {
      close_bucket();  // its all-reduce overlaps backward
      if (!has_sharded_penalty(plan_.graph))
        plan_.metrics_interval = static_cast<std::uint64_t>(
            std::clamp(max_deferred_work / std::max(plan_.graph.work, 1.0), 1.0, max_metrics_interval));
    }
    const std::vector<Operation>& backward = plan_.graph.backward;
    for (auto begin = backward.begin(); begin != backward.end();) {
      const Segment& segment = segment_of(segments, plan_.graph, *begin);
      const auto end = std::find_if(begin, backward.end(), [&](const Operation& operation) {
        return &segment_of(segments, plan_.graph, operation) != &segment;
      });
      add_backward_segment({begin, end}, segment.microbatches);
      begin = end;
    }
    if (open_.begin < open_.end) close_bucket();
    while (!pending_.empty()) update_oldest();
    place_frozen();
    insert_waits();
    return std::move(plan_);
  }

 private:
  /// All microbatches add to the same gradients, so only the last one completes them.
  void add_backward_segment(std::span<const Operation> operations, std::size_t microbatches) {
    for (std::size_t microbatch = 0; microbatch < microbatches; ++microbatch) {
      for (Operation operation : operations) {
        operation.microbatch = {microbatch, microbatches};
        if (microbatch + 1 == microbatches) {
          add_backward(operation);
        } else {
          plan_.training.emplace_back(add_compute(operation));
        }
      }
    }
  }

  Compute add_compute(const Operation& operation) {
    plan_.compute.push_back(operation);
    return {plan_.compute.size() - 1};
  }

  void add_forward(Operation operation, const Microbatch& microbatch) {
    operation.microbatch = microbatch;
    const Compute compute = add_compute(operation);
    std::vector<std::vector<PlanStep>*> lists{&plan_.training};
    if (operation.kind != OperationKind::batch_statistics) lists.push_back(&plan_.inference);
    for (std::vector<PlanStep>* list : lists) append(compute, *list);
    if (!makes_partial_sum(operation)) return;
    const std::array<PlanStep, 3> steps = all_reduce(*operation.partial_sum);
    for (std::vector<PlanStep>* list : lists) list->insert(list->end(), steps.begin(), steps.end());
  }

  /// An all-to-all starts as soon as its blocks are packed, and finishes just before they are unpacked.
  void append(const Compute& compute, std::vector<PlanStep>& list) const {
    const Operation& operation = plan_.compute[compute.operation];
    if (operation.kind == OperationKind::unpack_all_to_all) list.emplace_back(FinishAllToAll{*operation.all_to_all});
    list.emplace_back(compute);
    if (operation.kind == OperationKind::pack_all_to_all) list.emplace_back(StartAllToAll{*operation.all_to_all});
  }

  /// All-reduces a partial sum immediately. It has a separate bucket.
  std::array<PlanStep, 3> all_reduce(int partial_sum) {
    ParameterSpec& parameter = plan_.graph.parameters[partial_sum];
    place(parameter);
    const std::size_t bucket = plan_.buckets.size();
    plan_.buckets.push_back({parameter.offset, plan_.elements});
    return {MarkReady{bucket}, Update{bucket}, WaitUpdated{bucket}};
  }

  /// True if no gradients are all-reduced, because the model is tensor parallel or replicated.
  [[nodiscard]] bool all_parameters_local() const {
    const auto begin = plan_.graph.parameters.begin();
    const auto end = begin + plan_.graph.metrics_parameter();
    return begin != end && std::all_of(begin, end, [](const ParameterSpec& p) { return p.is_local; });
  }

  /// Places frozen weights after all others.
  void place_frozen() {
    plan_.weight_elements = plan_.elements;
    plan_.local_weight_elements = plan_.local_elements;
    for (ParameterSpec& parameter : plan_.graph.parameters) {
      if (parameter.rule != UpdateRule::frozen) continue;
      std::size_t& elements = parameter.is_local ? plan_.local_weight_elements : plan_.weight_elements;
      parameter.offset = elements;
      elements += arena_elements(parameter);
    }
  }

  void place(ParameterSpec& parameter) {
    std::size_t& elements = parameter.is_local ? plan_.local_elements : plan_.elements;
    parameter.offset = elements;
    elements += arena_elements(parameter);
  }

  /// The operation's parameters in arena order: the kernel last, so that its chunks are adjacent to the next layer's
  /// parameters. For the loss, the metric sums. None of a frozen layer.
  [[nodiscard]] std::vector<ParameterSpec*> parameters_of(const Operation& operation) {
    std::vector<ParameterSpec*> found;
    if (operation.is_frozen) return found;
    for (int i = operation.num_parameters; i-- > 0;) found.push_back(&plan_.graph.parameters[operation.parameter + i]);
    return found;
  }

  /// The gradients of a shared layer are complete after the backward pass of its first call.
  void add_backward(const Operation& operation) {
    if (operation.shared.index + 1 < operation.shared.count) {
      plan_.training.emplace_back(add_compute(operation));
      return;
    }
    const std::vector<ParameterSpec*> parameters = parameters_of(operation);
    const std::size_t begin = plan_.elements;
    const std::size_t local_begin = plan_.local_elements;
    for (ParameterSpec* parameter : parameters) place(*parameter);
    const bool is_constrained = std::ranges::any_of(parameters, [](const auto* p) { return p->is_constrained(); });
    if (operation.kind != OperationKind::dense_backward || operation.is_frozen || operation.shared.count > 1 ||
        is_constrained) {
      emit(operation, {begin, plan_.elements});
      update_local({local_begin, plan_.local_elements});
      if (!makes_partial_sum(operation)) return;
      for (const PlanStep& step : all_reduce(*operation.partial_sum)) plan_.training.push_back(step);
      return;
    }
    // Chunks go from the last input feature to the first. The next forward product begins with the first features,
    // whose weights are then still in the cache. The chunk of the first feature includes the bias.
    const ParameterSpec& kernel = *parameters.back();
    const std::int64_t units = kernel.info.shape[1];
    std::size_t end = kernel.is_local ? plan_.local_elements : plan_.elements;
    for (const auto& [first, last] : chunks_of(static_cast<std::int64_t>(operation.input_features.end), units)) {
      Operation chunk = operation;
      chunk.input_features = {static_cast<std::size_t>(first), static_cast<std::size_t>(last)};
      const std::size_t all = kernel.is_local ? local_begin : begin;
      const std::size_t chunk_begin = first == 0 ? all : kernel.offset + static_cast<std::size_t>(first * units);
      emit(chunk, kernel.is_local ? Range{} : Range{chunk_begin, end});
      if (kernel.is_local) update_local({chunk_begin, end});
      end = chunk_begin;
    }
  }

  /// No other rank waits for these weights, so they are updated while their gradient is in the cache.
  void update_local(const Range& range) {
    if (range.begin == range.end) return;
    plan_.training.emplace_back(UpdateLocal{plan_.local_ranges.size()});
    plan_.local_ranges.push_back(range);
  }

  /// Splits [0, rows) into chunks of multiples of a cache line, the last rows first. A small remainder is merged into
  /// the chunk before it.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> chunks_of(std::int64_t rows,
                                                                             std::int64_t units) const {
    if (rows == 0 || units == 0) return {{0, rows}};  // this rank holds no channels of the layer
    const auto row_bytes = static_cast<std::size_t>(units) * sizeof(float);
    const auto size = static_cast<std::int64_t>(
        std::max(cache_line_elements, options_.chunk_bytes / row_bytes / cache_line_elements * cache_line_elements));
    std::vector<std::pair<std::int64_t, std::int64_t>> chunks;
    for (std::int64_t begin = 0; begin < rows; begin += size) chunks.emplace_back(begin, std::min(begin + size, rows));
    if (chunks.size() > 1 && chunks.back().second - chunks.back().first < size / 4) {
      chunks.pop_back();
      chunks.back().second = rows;
    }
    std::reverse(chunks.begin(), chunks.end());
    return chunks;
  }

  /// Appends an operation that completes the gradients of `range`. A bucket consists of adjacent ranges.
  void emit(const Operation& operation, const Range& range) {
    const Compute compute = add_compute(operation);
    if (open_.begin < open_.end && range.begin < range.end && range.begin != open_.end) close_bucket();
    append(compute, plan_.training);
    if (range.begin < range.end) open_ = {open_.begin < open_.end ? open_.begin : range.begin, range.end};
    if ((open_.end - open_.begin) * sizeof(float) >= options_.bucket_bytes) close_bucket();
  }

  void close_bucket() {
    const std::size_t bucket = plan_.buckets.size();
    const std::size_t metrics = plan_.graph.parameters[plan_.graph.metrics_parameter()].offset;
    if (open_.begin <= metrics && metrics < open_.end) plan_.metrics_bucket = bucket;
    plan_.buckets.push_back(open_);
    open_ = {};
    plan_.training.emplace_back(MarkReady{bucket});
    pending_.push_back(bucket);
    if (pending_.size() > options_.update_lag) update_oldest();
  }

  void update_oldest() {
    plan_.training.emplace_back(Update{pending_.front()});
    pending_.pop_front();
  }

  /// Inserts waits so that all buckets that hold an operation's weights are updated before it runs.
  void insert_waits() {
    std::vector<PlanStep> with_waits;
    std::vector<bool> awaited(plan_.buckets.size(), false);
    const auto wait_for = [&](const ParameterSpec& parameter) {
      for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
        const Range& bucket = plan_.buckets[b];
        const bool touches = parameter.offset < bucket.end && parameter.offset + parameter.storage > bucket.begin;
        if (!touches || awaited[b]) continue;
        awaited[b] = true;
        with_waits.emplace_back(WaitUpdated{b});
      }
    };
    for (const PlanStep& step : plan_.training) {
      if (const Operation* operation = plan_.operation_of(step)) {
        for (const ParameterSpec* parameter : parameters_of(*operation)) {
          if (!parameter->is_local) wait_for(*parameter);
        }
      }
      with_waits.push_back(step);
    }
    plan_.training = std::move(with_waits);
  }

  PlanOptions options_;
  Plan plan_;
  Range open_;                       ///< the bucket being filled
  std::deque<std::size_t> pending_;  ///< buckets that are ready and not yet updated
};

}  // namespace

Plan make_plan(Graph graph, const PlanOptions& options) { return Planner(std::move(graph), options).run(); }

}  // namespace lockstep
