// See batch_feed.hpp.
#include "session/batch_feed.hpp"

#include "core/range.hpp"
#include "losses/loss_registry.hpp"
#include "session/check_arrays.hpp"
#include "session/data_digest.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

namespace {

bool takes_any_target(const Loss& loss) {
  return std::visit([]<typename T>(const T& /*loss*/) { return LossTraits<T>::targets == TargetRange::any; }, loss);
}

/// Keras ignores a class that does not exist, and trains with any factor. The "classes" of a regression are its targets
/// as whole numbers.
void require_classes(const std::map<int, double>& class_weight, const Shape& output, bool is_regression) {
  const std::int64_t outputs = output.extents().back();
  const std::int64_t classes = outputs == 1 ? 2 : outputs;
  for (const auto& [of_class, weight] : class_weight) {
    if (!is_regression && (of_class < 0 || of_class >= classes)) {
      throw UsageError(fmt::format("class_weight has a weight for the class {}, but the model's classes are 0 to {}",
                                   of_class, classes - 1));
    }
    if (!std::isfinite(weight)) {
      throw UsageError(fmt::format("class_weight of the class {} is {}; it must be a finite number", of_class, weight));
    }
  }
}

}  // namespace

BatchFeed::BatchFeed(RunContext& run_context, const Architecture& architecture, std::size_t batch_norm_replicas,
                     bool computes_whole_batch)
    : run_context_(run_context),
      architecture_(architecture),
      batch_norm_replicas_(batch_norm_replicas),
      computes_whole_batch_(computes_whole_batch) {
  replica_ranges_.reserve(batch_norm_replicas);
}

std::size_t BatchFeed::capacity(std::size_t batch_size) const {
  return max_examples_per_rank(batch_size, slices(), batch_norm_replicas_);
}

BatchFeed::Identity BatchFeed::identity_of(const Dataset& data) {
  std::int64_t elements = 0;
  for (const InputArray& array : data.inputs) elements += array.shape.elements();
  std::size_t types = 1;  // a bit for each array after the first
  for (const TargetArray& array : data.targets) types = 2 * types + array.values.index();
  return {data.id.value(), data.size(), types, elements};
}

void BatchFeed::check_inputs(const Dataset& data) {
  check_inputs_alone(data, architecture_, run_context_.options().input_scale);
  run_context_.require_equal_on_all_ranks("the inputs", digest_of(data));
}

void BatchFeed::validate(const Dataset& data, std::span<const OutputOptions> outputs) {
  if (data.inputs.empty()) check_example_shapes(data, architecture_);
  const Identity identity = identity_of(data);
  const auto same = [&](const Checked& checked) { return checked.identity == identity; };
  if (std::any_of(checked_.begin(), checked_.end(), same)) return;
  check_data(data, architecture_, outputs, run_context_.options().input_scale);
  std::string description = digest_of(data);
  run_context_.require_equal_on_all_ranks("the data", description);
  constexpr std::size_t max_checked = 64;
  std::erase_if(checked_, [&](const Checked& other) { return other.identity.dataset == identity.dataset; });
  if (checked_.size() == max_checked) checked_.erase(checked_.begin());
  checked_.push_back({identity, std::move(description)});
}

std::string BatchFeed::data_description(const Dataset& data) const {
  for (const Checked& checked : checked_) {
    if (checked.identity.dataset == data.id.value()) return checked.description;
  }
  return {};
}

void BatchFeed::set_class_weights(const Dataset& data, const std::map<int, double>& class_weight,
                                  std::span<const OutputOptions> outputs) {
  class_weights_.clear();
  weighted_dataset_ = data.id.value();
  if (class_weight.empty()) return;
  if (!data.sample_weights.empty()) {
    throw UsageError(data.source +
                     " has sample weights, which fit() does not combine with class_weight; multiply them");
  }
  if (architecture_.outputs().size() > 1) {
    throw UsageError(
        "class_weight is for models with one output, as in Keras; give Dataset::sample_weights (sample_weight)");
  }
  const bool is_regression = architecture_.output_shape().elements() == 1 && takes_any_target(outputs.front().loss);
  require_classes(class_weight, architecture_.output_shape(), is_regression);
  const auto weight_of = [&](std::int64_t of_class) {
    const auto found = class_weight.find(static_cast<int>(of_class));
    return found == class_weight.end() ? 1.0F : static_cast<float>(found->second);
  };
  const Shape& shape = data.target().shape.rank() > 1 ? data.target().shape : architecture_.output_shape();
  if (shape.rank() > 1) {
    throw UsageError(fmt::format("class_weight needs one class for each example, but the targets of {} are {}",
                                 data.source, shape.to_string()));
  }
  if (const auto* classes = std::get_if<SharedArray<std::int32_t>>(&data.target().values)) {
    for (const std::int32_t of_class : *classes) class_weights_.push_back(weight_of(of_class));
    return;
  }
  const auto& targets = std::get<SharedArray<float>>(data.target().values);
  const std::size_t width = targets.size() / data.size();
  for (auto row = targets.begin(); row != targets.end(); row += static_cast<std::ptrdiff_t>(width)) {
    const auto end = row + static_cast<std::ptrdiff_t>(width);
    class_weights_.push_back(weight_of(width == 1 ? std::lrint(*row) : std::max_element(row, end) - row));
  }
}

std::span<const float> BatchFeed::weights_of(const Dataset& data, bool training) const {
  const bool by_class = training && !class_weights_.empty() && weighted_dataset_ == data.id.value();
  if (by_class) return class_weights_;
  return data.sample_weights;
}

void BatchFeed::add_weights(StepContext& context, const Batch& whole, std::span<const float> weights) {
  sample_weights_.clear();
  for (const std::uint32_t example : context.examples) sample_weights_.push_back(weights[example]);
  context.sample_weights = sample_weights_;
  whole_batch_.resize(whole.size);
  sampler_->read(whole.position, whole_batch_);
  for (const std::uint32_t example : whole_batch_) context.total_weight += weights[example];
}

std::span<const InputPointer> BatchFeed::point_at_inputs(const Dataset& data) {
  inputs_.clear();
  for (std::size_t i = 0; i < architecture_.inputs().size(); ++i) {
    std::visit([this](const auto& values) { inputs_.emplace_back(values.data()); },
               array_of_input(data, architecture_, i).values);
  }
  return inputs_;
}

std::span<const TargetPointer> BatchFeed::point_at_targets(const Dataset& data) {
  targets_.clear();
  for (std::size_t i = 0; i < architecture_.outputs().size(); ++i) {
    std::visit([this](const auto& values) { targets_.emplace_back(values.data()); },
               array_of_output(data, architecture_, i).values);
  }
  return targets_;
}

std::optional<int> BatchFeed::own_slice() const {
  return computes_whole_batch_ ? std::optional(0) : run_context_.training_rank();
}

bool BatchFeed::has_examples(const Batch& batch, std::size_t slice) const {
  const auto index = static_cast<int>(slice);
  return index < slices() && !examples_of_rank(batch.size, index, slices(), batch_norm_replicas_).empty();
}

StepContext BatchFeed::prepare_slice(const Batch& batch, std::size_t slice, std::size_t slices_in_update,
                                     std::uint64_t step) {
  StepContext context = prepare_slice(batch, batch, static_cast<int>(slice), step, true);
  const auto slices = static_cast<double>(slices_in_update);
  context.total_replicas = context.replicas.size() * slices_in_update;
  context.gradient_scale = 1 / (slices * static_cast<double>(std::max<std::size_t>(context.examples.size(), 1)));
  context.total_weight = slices * std::accumulate(context.sample_weights.begin(), context.sample_weights.end(), 0.0);
  return context;
}

StepContext BatchFeed::prepare_slice(const Batch& batch, const Batch& whole, std::optional<int> slice,
                                     std::uint64_t step, bool training) {
  const Dataset& data = *batch.data;
  if (sampled_dataset_ != data.id.value() || sampler_shuffles_ != batch.shuffle ||
      sampler_->examples() != data.size()) {
    sampler_ = std::make_unique<Sampler>(data.size(), run_context_.options().seed, batch.shuffle);
    sampled_dataset_ = data.id.value();
    sampler_shuffles_ = batch.shuffle;
  }
  const Range shard = slice ? examples_of_rank(batch.size, *slice, slices(), batch_norm_replicas_) : Range{};
  examples_.resize(std::max(examples_.size(), shard.size()));
  const std::span<std::uint32_t> examples = std::span(examples_).first(shard.size());
  sampler_->read(batch.position + shard.begin, examples);

  replica_ranges_.clear();
  const Range replicas =
      slice ? slice_of(batch_norm_replicas_, static_cast<std::size_t>(*slice), static_cast<std::size_t>(slices()))
            : Range{};
  for (std::size_t replica = replicas.begin; replica < replicas.end; ++replica) {
    const Range range = slice_of(batch.size, replica, batch_norm_replicas_);
    if (!range.empty()) replica_ranges_.push_back({range.begin - shard.begin, range.end - shard.begin});
  }
  StepContext context;
  context.data.inputs = point_at_inputs(data);
  context.data.targets = point_at_targets(data);
  context.data.examples = data.size();
  context.data.dataset_id = data.id.value();
  context.examples = examples;
  context.batch_offset = shard.begin;
  context.replicas = replica_ranges_;
  if (computes_whole_batch_) {
    const Range counted =
        examples_of_rank(batch.size, run_context_.world().rank(), run_context_.world().size(), batch_norm_replicas_);
    context.metric_examples = {counted.begin, counted.end};
  }
  context.total_replicas = std::min(batch_norm_replicas_, batch.size);
  context.gradient_scale = 1.0 / static_cast<double>(whole.size);
  if (const std::span<const float> weights = weights_of(data, training); !weights.empty())
    add_weights(context, whole, weights);
  context.step = step;
  context.seed = run_context_.options().seed;
  context.training = training;
  return context;
}

}  // namespace lockstep
