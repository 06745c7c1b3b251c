// See model_state.hpp.
#include "training/model_state.hpp"

#include "checkpoint/keras_config.hpp"
#include "checkpoint/model_file.hpp"
#include "core/clock.hpp"
#include "training/data_digest.hpp"
#include "training/saving.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace lockstep {

namespace {

std::vector<Variable> initial_values(const Sequential& architecture, std::uint64_t seed) {
  std::vector<Variable> variables;
  for (const LayerInfo& layer : architecture.layers()) {
    for (const ParameterInfo& parameter : layer.parameters) {
      Variable variable{layer.name + "/" + parameter.name, parameter.shape, {}};
      variable.values.resize(static_cast<std::size_t>(parameter.shape.elements()));
      initialize(parameter, seed, variables.size(), variable.values);
      variables.push_back(std::move(variable));
    }
  }
  return variables;
}

/// "Input(28, 28) Dense(10,)": what a person needs to tell two models apart.
std::string outline_of(const Sequential& architecture) {
  std::string outline;
  for (const LayerInfo& layer : architecture.layers()) {
    if (!outline.empty()) outline += ' ';
    outline += layer.class_name + layer.output_shape.to_string();
  }
  return outline;
}

/// The rows of a global batch of `size` examples that a rank computes: those of its replicas.
Slice rows_of(std::size_t size, int rank, int ranks, std::size_t replicas) {
  const Slice mine = slice_of(replicas, static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
  if (mine.size() == 0) return {};
  return {slice_of(size, mine.begin, replicas).begin, slice_of(size, mine.end - 1, replicas).end};
}

template <typename T>
std::span<T> take(std::span<std::byte>& memory, std::size_t count) {
  constexpr std::size_t line = 64;
  const std::size_t bytes = (count * sizeof(T) + line - 1) / line * line;
  const std::span<T> taken(reinterpret_cast<T*>(memory.data()), count);
  memory = memory.subspan(bytes);
  return taken;
}

}  // namespace

void check_loss(const StepMetrics& metrics, const std::string& where) {
  if (std::isfinite(metrics.loss_sum)) return;
  throw DataError("the loss became " + std::string(std::isnan(metrics.loss_sum) ? "NaN" : "infinite") + " in " + where +
                  "; a smaller --learning-rate may help");
}

ModelState::ModelState(std::shared_ptr<Runtime> runtime, Sequential architecture)
    : runtime_(std::move(runtime)),
      architecture_(std::move(architecture)),
      values_(initial_values(architecture_, runtime_->options().seed)) {}

ModelState::Compiled& ModelState::compiled() {
  if (!compiled_) throw UsageError("the model is not compiled yet; call model.compile(...) first");
  return *compiled_;
}

void ModelState::compile(const CompileOptions& options) {
  const Options& run = runtime_->options();
  if (compiled_) values_ = weights();
  compiled_.reset();
  auto next = std::make_unique<Compiled>();
  next->options = options;
  if (run.learning_rate) replace_learning_rate(next->options.optimizer, *run.learning_rate);
  check(next->options.optimizer);

  const bool mixed = run.precision == Precision::mixed_bfloat16;
  const auto batch = static_cast<std::size_t>(run.global_batch_size);
  const int ranks = runtime_->world().size();
  for (int rank = 0; rank < ranks; ++rank) {
    next->capacity = std::max(next->capacity, rows_of(batch, rank, ranks, runtime_->replicas()).size());
  }
  Graph graph = lower(architecture_, next->options.loss, mixed);
  runtime_->backend().lay_out(graph, next->capacity);
  next->plan = make_plan(std::move(graph), runtime_->backend().plan_options(ranks));
  runtime_->agree("the model", outline_of(architecture_));
  runtime_->agree("the layers' options", sequential_to_json(architecture_));
  runtime_->agree("how the model is compiled",
                  training_to_json({next->options.optimizer, next->options.loss, next->options.metrics, 0, {}}));
  runtime_->agree("the plan", next->plan.digest());

  const std::size_t elements = next->plan.elements;
  const std::size_t slots = elements * static_cast<std::size_t>(slots_of(next->options.optimizer));
  const std::size_t low_precision = mixed ? elements : 0;
  constexpr std::size_t alignment = std::size_t{3} * 64;
  next->communicator = runtime_->new_communicator();
  const ArenaMemory memory = next->communicator->allocate(
      elements, (elements + slots) * sizeof(float) + low_precision * sizeof(std::uint16_t) + alignment,
      next->plan.buckets);
  std::span<std::byte> mirrored = memory.mirrored;
  next->arenas.elements = elements;
  next->arenas.gradients = memory.gradients;
  next->arenas.weights = take<float>(mirrored, elements);
  next->arenas.slots = take<float>(mirrored, slots);
  next->arenas.low_precision = take<std::uint16_t>(mirrored, low_precision);
  next->executable = runtime_->backend().compile(next->plan.graph, next->plan.compute, next->arenas, next->capacity);
  next->step = std::make_unique<Step>(next->plan, *next->executable, *next->communicator);
  examples_.resize(next->capacity);
  replicas_.reserve(runtime_->replicas());
  compiled_ = std::move(next);
  checked_.clear();  // another loss may want other targets
  iteration_ = 0;
  write_weights();
}

void ModelState::write_weights() {
  Compiled& model = *compiled_;
  model.communicator->barrier();  // nobody may still read what is about to change
  if (model.communicator->owns_mirror()) {
    for (std::size_t p = 0; p < values_.size(); ++p) {
      model.executable->write_parameter(p, values_[p].values, model.arenas.weights);
    }
    model.executable->refresh();
  }
  model.communicator->barrier();
  values_.clear();
}

ModelState::CheckedData ModelState::identity_of(const Dataset& data) {
  return {&data, data.size(), data.targets.index(), data.example_shape.elements()};
}

void ModelState::check_examples(const Dataset& data) const {
  if (data.example_shape.elements() == architecture_.input_shape().elements()) return;
  throw DataError("the model takes examples of shape " + architecture_.input_shape().to_string() + ", but " +
                  data.source + " has " + data.example_shape.to_string());
}

void ModelState::use(const Dataset& data) {
  const CheckedData identity = identity_of(data);
  if (std::find(checked_.begin(), checked_.end(), identity) != checked_.end()) return;
  check_examples(data);
  if (data.size() == 0) throw DataError(data.source + " holds no examples");
  const std::int64_t outputs = architecture_.output_shape().elements();
  const bool wants_classes = std::holds_alternative<SparseCategoricalCrossentropy>(compiled().options.loss);
  const bool has_classes = std::holds_alternative<std::vector<std::int32_t>>(data.targets);
  if (wants_classes != has_classes) {
    throw UsageError("the loss " + std::string(name_of(compiled().options.loss)) + " takes " +
                     (wants_classes ? "class indices" : "dense targets") + ", but " + data.source + " has " +
                     (has_classes ? "class indices" : "dense targets"));
  }
  if (!has_classes && data.target_shape.elements() != outputs) {
    throw DataError(data.source + " has targets of shape " + data.target_shape.to_string() +
                    ", but the model's outputs have " + architecture_.output_shape().to_string());
  }
  data.check(outputs);
  runtime_->agree("the data", digest_of(data));
  std::erase_if(checked_, [&](const CheckedData& other) { return other.data == &data; });
  checked_.push_back(identity);
}

StepContext ModelState::prepare(const Batch& batch, bool training) {
  const Dataset& data = *batch.data;
  if (streamed_ != &data || stream_shuffles_ != batch.shuffle || stream_->examples() != data.size()) {
    stream_ = std::make_unique<ExampleStream>(data.size(), runtime_->options().seed, batch.shuffle);
    streamed_ = &data;
    stream_shuffles_ = batch.shuffle;
  }
  const std::size_t replicas = runtime_->replicas();
  const int rank = runtime_->world().rank();
  const int ranks = runtime_->world().size();
  const Slice rows = rows_of(batch.size, rank, ranks, replicas);
  const std::span<std::uint32_t> examples = std::span(examples_).first(rows.size());
  stream_->read(batch.position + rows.begin, examples);

  replicas_.clear();
  const Slice mine = slice_of(replicas, static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
  for (std::size_t replica = mine.begin; replica < mine.end; ++replica) {
    const Slice slice = slice_of(batch.size, replica, replicas);
    if (slice.size() > 0) replicas_.push_back({slice.begin - rows.begin, slice.end - rows.begin});
  }
  StepContext context;
  std::visit([&](const auto& inputs) { context.data.inputs = inputs.data(); }, data.inputs);
  std::visit([&](const auto& targets) { context.data.targets = targets.data(); }, data.targets);
  context.data.examples = data.size();
  context.data.lasting = true;
  context.examples = examples;
  context.first_place = rows.begin;
  context.replicas = replicas_;
  context.total_replicas = std::min(replicas, batch.size);
  context.gradient_scale = 1.0 / static_cast<double>(batch.size);
  context.step = iteration_;
  context.seed = runtime_->options().seed;
  context.training = training;
  return context;
}

void ModelState::start(const Batch& batch) {
  const double begin = monotonic_seconds();
  Compiled& model = compiled();
  const StepContext context = prepare(batch, true);
  model.step->train(context, model.options.optimizer, ++iteration_);
  ++under_way_;
  count_seconds(monotonic_seconds() - begin);
}

StepMetrics ModelState::finish() {
  const double begin = monotonic_seconds();
  Compiled& model = compiled();
  std::array<float, metric_places> sums{};
  model.executable->take_metrics(sums);
  --under_way_;
  const StepMetrics metrics{sums[metric_loss], sums[metric_correct], sums[metric_count]};
  epoch_metrics_ += metrics;
  count_seconds(monotonic_seconds() - begin);
  if (seconds_to_first_step_ == 0) {  // the first step makes the kernels: it is start-up, not speed
    seconds_to_first_step_ = seconds_since_process_start();
    step_seconds_ = 0;
    model.step->reset_profile();
  }
  return metrics;
}

StepMetrics ModelState::train(const Batch& batch) {
  start(batch);
  return finish();
}

void ModelState::count_seconds(double seconds) {
  epoch_seconds_ += seconds;
  step_seconds_ += seconds;
}

void ModelState::test(const Batch& batch, StepMetrics& local) {
  Compiled& model = compiled();
  model.step->settle();
  const StepContext context = prepare(batch, false);
  model.step->infer(context);
  const ParameterSpec& place = model.plan.graph.parameters[model.plan.graph.metrics_parameter()];
  std::array<float, metric_places> sums{};
  model.executable->read(model.arenas.gradients.subspan(place.offset, sums.size()), sums);
  local += {sums[metric_loss], sums[metric_correct], sums[metric_count]};
}

StepMetrics ModelState::all_reduce(const StepMetrics& local) {
  std::array<double, 3> sums{local.loss_sum, local.correct, local.count};
  compiled().communicator->all_reduce_sum(sums);
  return {sums[0], sums[1], sums[2]};
}

std::vector<float> ModelState::predict(const Dataset& data) {
  Compiled& model = compiled();
  check_examples(data);
  model.step->settle();
  const auto outputs = static_cast<std::size_t>(architecture_.output_shape().elements());
  std::vector<float> all(data.size() * outputs);
  std::vector<std::uint32_t> order(data.size());
  std::iota(order.begin(), order.end(), 0U);
  StepContext context;
  std::visit([&](const auto& inputs) { context.data.inputs = inputs.data(); }, data.inputs);
  context.data.examples = data.size();
  for (std::size_t begin = 0; begin < data.size(); begin += model.capacity) {
    const std::size_t rows = std::min(model.capacity, data.size() - begin);
    context.examples = std::span(order).subspan(begin, rows);
    for (const Operation& operation : model.plan.inference) {
      if (operation.kind != OperationKind::loss) model.executable->run(operation, context);
    }
    std::copy_n(model.executable->outputs().begin(), rows * outputs,
                all.begin() + static_cast<std::ptrdiff_t>(begin * outputs));
  }
  return all;
}

std::vector<Variable> ModelState::weights() {
  if (!compiled_) return values_;
  compiled_->step->settle();
  std::vector<Variable> variables;
  for (std::size_t p = 0; p + 1 < compiled_->plan.graph.parameters.size(); ++p) {
    const ParameterSpec& parameter = compiled_->plan.graph.parameters[p];
    Variable variable{parameter.name, parameter.info.shape, {}};
    variable.values.resize(static_cast<std::size_t>(parameter.info.shape.elements()));
    compiled_->executable->read_parameter(p, compiled_->arenas.weights, variable.values);
    variables.push_back(std::move(variable));
  }
  return variables;
}

std::vector<Variable> ModelState::slot(int slot) {
  compiled_->step->settle();
  std::vector<Variable> variables;
  const std::span<const float> arena = compiled_->arenas.slots.subspan(
      static_cast<std::size_t>(slot) * compiled_->arenas.elements, compiled_->arenas.elements);
  for (std::size_t p = 0; p + 1 < compiled_->plan.graph.parameters.size(); ++p) {
    const ParameterSpec& parameter = compiled_->plan.graph.parameters[p];
    if (!parameter.info.trainable) continue;
    Variable variable{parameter.name, parameter.info.shape, {}};
    variable.values.resize(static_cast<std::size_t>(parameter.info.shape.elements()));
    compiled_->executable->read_parameter(p, arena, variable.values);
    variables.push_back(std::move(variable));
  }
  return variables;
}

void ModelState::set_weights(const std::vector<Variable>& weights) {
  std::vector<Variable> expected = this->weights();
  if (weights.size() != expected.size()) {
    throw UsageError("the model has " + std::to_string(expected.size()) + " weights, but " +
                     std::to_string(weights.size()) + " were given");
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool fits = weights[i].shape == expected[i].shape &&
                      weights[i].values.size() == static_cast<std::size_t>(expected[i].shape.elements());
    if (!fits) {
      throw UsageError("weight '" + expected[i].name + "' has shape " + expected[i].shape.to_string() +
                       ", but the one given has " + weights[i].shape.to_string());
    }
    expected[i].values = weights[i].values;
  }
  values_ = std::move(expected);
  if (compiled_) write_weights();
}

bool ModelState::has_metric(Metric metric) const noexcept {
  if (!compiled_) return false;
  const auto& metrics = compiled_->options.metrics;
  return std::find(metrics.begin(), metrics.end(), metric) != metrics.end();
}

Logs ModelState::logs_of(const StepMetrics& metrics, const std::string& prefix) const {
  Logs logs{{prefix + "loss", metrics.loss()}};
  if (has_metric(accuracy)) logs[prefix + "accuracy"] = metrics.accuracy();
  return logs;
}

const EpochRecord& ModelState::end_epoch(int epoch, const Logs& more) {
  EpochRecord record{.epoch = epoch, .logs = logs_of(epoch_metrics_), .seconds = epoch_seconds_};
  record.images_per_second = epoch_seconds_ > 0 ? epoch_metrics_.count / epoch_seconds_ : 0;
  record.logs.insert(more.begin(), more.end());
  history_.epochs.push_back(std::move(record));
  epoch_metrics_ = {};
  epoch_seconds_ = 0;
  return history_.epochs.back();
}

void ModelState::save(const std::filesystem::path& path) {
  if (!runtime_->world().is_chief()) return;  // nothing in here is collective
  Compiled& model = compiled();
  std::vector<std::vector<Variable>> slots;
  slots.reserve(static_cast<std::size_t>(slots_of(model.options.optimizer)));
  for (int s = 0; s < slots_of(model.options.optimizer); ++s) slots.push_back(slot(s));
  save_model(path, to_saved_model(architecture_, weights(), model.options, std::move(slots), iteration_));
  RunReport report;
  report.history = history_;
  report.evaluation = evaluation_;
  report.timing.seconds_to_first_step = seconds_to_first_step_;
  report.timing.steps = static_cast<std::int64_t>(iteration_);
  const StepProfile& profile = model.step->profile();
  if (profile.steps > 0) {
    std::map<std::string, double>& kinds = report.timing.profile_ms_per_step;
    kinds = profile.by_kind(model.plan);
    const double known = std::accumulate(kinds.begin(), kinds.end(), 0.0,
                                         [](double sum, const auto& kind) { return sum + kind.second; });
    const double total = step_seconds_ * 1000.0 / static_cast<double>(profile.steps);
    kinds["other"] = total - known;
    kinds["total"] = total;
    report.timing.operations_ms_per_step = profile.by_operation(model.plan);
  }
  save_history(path.parent_path() / "history.json", std::move(report), *runtime_, model.communicator->describe());
}

}  // namespace lockstep
