// See batch_feed.hpp.
#include "training/batch_feed.hpp"

#include "training/data_digest.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <variant>

namespace lockstep {

std::size_t most_rows(std::size_t batch, int ranks, std::size_t replicas) {
  std::size_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, rows_of_rank(batch, rank, ranks, replicas).size());
  return most;
}

BatchFeed::BatchFeed(Runtime& runtime, const Sequential& architecture, std::size_t replicas, bool whole_batches)
    : runtime_(runtime), architecture_(architecture), replicas_(replicas), whole_batches_(whole_batches) {
  const auto batch = static_cast<std::size_t>(runtime.options().global_batch_size);
  const int ranks = whole_batches ? 1 : runtime.world().size();
  capacity_ = most_rows(batch, ranks, replicas);
  examples_.resize(capacity_);
  replica_rows_.reserve(replicas);
}

BatchFeed::Identity BatchFeed::identity_of(const Dataset& data) {
  return {&data, data.size(), data.targets.index(), data.example_shape.elements()};
}

void BatchFeed::check_examples(const Dataset& data) const {
  if (data.example_shape.elements() == architecture_.input_shape().elements()) return;
  throw DataError("the model takes examples of shape " + architecture_.input_shape().to_string() + ", but " +
                  data.source + " has " + data.example_shape.to_string());
}

void BatchFeed::use(const Dataset& data, const Loss& loss) {
  const Identity identity = identity_of(data);
  const auto same = [&](const Checked& checked) { return checked.identity == identity; };
  if (std::any_of(checked_.begin(), checked_.end(), same)) return;
  check_examples(data);
  if (data.size() == 0) throw DataError(data.source + " holds no examples");
  const std::int64_t outputs = architecture_.output_shape().elements();
  const bool wants_classes = std::holds_alternative<SparseCategoricalCrossentropy>(loss);
  const bool has_classes = std::holds_alternative<std::vector<std::int32_t>>(data.targets);
  if (wants_classes != has_classes) {
    throw UsageError("the loss " + std::string(name_of(loss)) + " takes " +
                     (wants_classes ? "class indices" : "dense targets") + ", but " + data.source + " has " +
                     (has_classes ? "class indices" : "dense targets"));
  }
  if (!has_classes && data.target_shape.elements() != outputs) {
    throw DataError(data.source + " has targets of shape " + data.target_shape.to_string() +
                    ", but the model's outputs have " + architecture_.output_shape().to_string());
  }
  data.check(outputs);
  std::string description = digest_of(data);
  runtime_.agree("the data", description);
  std::erase_if(checked_, [&](const Checked& other) { return other.identity.data == &data; });
  checked_.push_back({identity, std::move(description)});
}

std::string BatchFeed::description_of(const Dataset& data) const {
  for (const Checked& checked : checked_) {
    if (checked.identity.data == &data) return checked.description;
  }
  return {};
}

StepContext BatchFeed::prepare(const Batch& batch, std::uint64_t step, bool training) {
  const Dataset& data = *batch.data;
  if (streamed_ != &data || stream_shuffles_ != batch.shuffle || stream_->examples() != data.size()) {
    stream_ = std::make_unique<ExampleStream>(data.size(), runtime_.options().seed, batch.shuffle);
    streamed_ = &data;
    stream_shuffles_ = batch.shuffle;
  }
  const int rank = whole_batches_ ? 0 : runtime_.world().rank();
  const int ranks = whole_batches_ ? 1 : runtime_.world().size();
  const Slice rows = rows_of_rank(batch.size, rank, ranks, replicas_);
  const std::span<std::uint32_t> examples = std::span(examples_).first(rows.size());
  stream_->read(batch.position + rows.begin, examples);

  replica_rows_.clear();
  const Slice mine = slice_of(replicas_, static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
  for (std::size_t replica = mine.begin; replica < mine.end; ++replica) {
    const Slice slice = slice_of(batch.size, replica, replicas_);
    if (slice.size() > 0) replica_rows_.push_back({slice.begin - rows.begin, slice.end - rows.begin});
  }
  StepContext context;
  std::visit([&](const auto& inputs) { context.data.inputs = inputs.data(); }, data.inputs);
  std::visit([&](const auto& targets) { context.data.targets = targets.data(); }, data.targets);
  context.data.examples = data.size();
  context.data.lasting = true;
  context.examples = examples;
  context.first_place = rows.begin;
  context.replicas = replica_rows_;
  if (whole_batches_) {
    const Slice counted = rows_of_rank(batch.size, runtime_.world().rank(), runtime_.world().size(), replicas_);
    context.counted = {counted.begin, counted.end};
  }
  context.total_replicas = std::min(replicas_, batch.size);
  context.gradient_scale = 1.0 / static_cast<double>(batch.size);
  context.step = step;
  context.seed = runtime_.options().seed;
  context.training = training;
  return context;
}

}  // namespace lockstep
