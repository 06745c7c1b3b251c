// See plan.hpp. Arenas are filled in the order in which backward reaches the layers, so what it completes in succession
// lies side by side: each backward operation adds its piece to the open bucket, which closes when it is large enough.
#include "plan/plan.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

namespace lockstep {

namespace {

constexpr std::size_t line_elements = 16;  // a cache line of floats: shares and parameters begin on one

std::size_t round_up(std::size_t count) { return (count + line_elements - 1) / line_elements * line_elements; }

class Planner {
 public:
  Planner(Graph graph, const PlanOptions& options) : options_(options) { plan_.graph = std::move(graph); }

  Plan run() {
    for (Operation& operation : plan_.graph.forward) {
      number(operation);
      plan_.training.push_back(operation);
      plan_.inference.push_back(operation);
    }
    place(plan_.graph.parameters[plan_.graph.metrics_parameter()]);
    open_ = {0, plan_.elements};
    for (const Operation& operation : plan_.graph.backward) add_backward(operation);
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

  void place(ParameterSpec& parameter) {
    parameter.offset = plan_.elements;
    plan_.elements += round_up(parameter.storage);
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
    for (ParameterSpec* parameter : parameters) place(*parameter);
    if (operation.kind != OperationKind::dense_backward) {
      emit(operation, {begin, plan_.elements});
      return;
    }
    // Chunks go from the last input feature to the first: the next forward product begins with the first ones, which
    // are then still in the cache. The bias goes with the first feature.
    const ParameterSpec& kernel = *parameters.back();
    const std::int64_t units = kernel.info.shape[1];
    std::size_t end = plan_.elements;
    for (const auto& [first, last] : chunks_of(operation.rows_end, units)) {
      Operation chunk = operation;
      chunk.rows_begin = first;
      chunk.rows_end = last;
      const std::size_t chunk_begin = first == 0 ? begin : kernel.offset + static_cast<std::size_t>(first * units);
      emit(chunk, {chunk_begin, end});
      end = chunk_begin;
    }
  }

  /// Cuts [0, rows) into chunks of whole cache lines, the last rows first; a small rest joins the last chunk.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::int64_t>> chunks_of(std::int64_t rows,
                                                                             std::int64_t units) const {
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
    plan_.training.push_back(operation);
    if (piece.begin < piece.end) open_ = {open_.begin < open_.end ? open_.begin : piece.begin, piece.end};
    if ((open_.end - open_.begin) * sizeof(float) >= options_.bucket_bytes) close_bucket();
  }

  void close_bucket() {
    const int bucket = static_cast<int>(plan_.buckets.size());
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
  if (operation.bucket >= 0) line += " bucket " + std::to_string(operation.bucket);
  return line;
}

}  // namespace

std::string Plan::to_string() const {
  std::string text;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    text += "tensor t" + std::to_string(t) + " " + graph.tensors[t].name + " " + extents(graph.tensors[t]) + "\n";
  }
  for (const ParameterSpec& parameter : graph.parameters) {
    text += "parameter " + parameter.name + " " + parameter.info.shape.to_string() + " at " +
            std::to_string(parameter.offset) + ", " + std::to_string(parameter.storage) + " elements\n";
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    text += "bucket " + std::to_string(b) + " [" + std::to_string(buckets[b].begin) + ", " +
            std::to_string(buckets[b].end) + ")\n";
  }
  for (const Operation& operation : training) text += line_of(operation, graph) + "\n";
  return text;
}

std::string Plan::digest() const {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : to_string()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, hash >>= 4U)
    *digit = "0123456789abcdef"[hash & 15U];
  return digits;
}

Plan make_plan(Graph graph, const PlanOptions& options) { return Planner(std::move(graph), options).run(); }

}  // namespace lockstep
