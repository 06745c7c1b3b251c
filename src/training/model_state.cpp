// See model_state.hpp.
#include "training/model_state.hpp"

#include "checkpoint/model_file.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "plan/division_words.hpp"
#include "plan/lower.hpp"
#include "training/backups.hpp"
#include "training/describe_options.hpp"
#include "training/saving.hpp"
#include "training/shared_read.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <exception>
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

/// For the run's record.
Record record_of(const DivisionChoice& choice) {
  Record record{{"division", name_of(choice.division)}, {"division_because", choice.why}};
  for (const auto& [name, seconds] : choice.predicted) record["predicted_ms_by_" + name] = 1000 * seconds;
  for (const auto& [bytes, seconds] : choice.link.points()) {
    record["ms_to_sum_" + std::to_string(static_cast<std::int64_t>(bytes)) + "_bytes"] = 1000 * seconds;
  }
  if (!choice.link.points().empty()) record["busy_us_per_summed_megabyte"] = 1e12 * choice.link.busy_per_byte();
  return record;
}

/// The file's values under the model's names.
std::vector<Variable> with_values_of(std::vector<Variable> variables, const SavedModel& saved) {
  for (std::size_t i = 0; i < variables.size(); ++i) variables[i].values = saved.weights[i].values;
  return variables;
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
      replicas_(runtime_->replicas()),
      values_(initial_values(architecture_, runtime_->options().seed)) {
  if (runtime_->options().initial_weights.empty()) return;
  const SharedModel file = read_model_file(*runtime_, runtime_->options().initial_weights, &architecture_);
  check_weights(file, architecture_);
  values_ = with_values_of(std::move(values_), file.model);
}

ModelState::~ModelState() {
  if (std::uncaught_exceptions() > 0) runtime_->drop_gathering();
  try {
    runtime_->finish_writing();  // it writes from our memory
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

CompiledModel& ModelState::compiled() {
  if (!compiled_) throw UsageError("the model is not compiled yet; call model.compile(...) first");
  return *compiled_;
}

void ModelState::compile(const CompileOptions& options) {
  runtime_->launcher().progress().forget_pace();
  if (compiled_) values_ = weights();
  runtime_->finish_writing();
  compiled_.reset();
  compiled_ = std::make_unique<CompiledModel>(*runtime_, architecture_, options, replicas_, kept_division_);
  iteration_ = 0;
  write_weights();
  runtime_->tell_busy();
}

void ModelState::write_weights() {
  compiled_->write_weights(values_);
  values_.clear();
}

void ModelState::load_weights(const SavedModel& saved) { set_weights(with_values_of(weights(), saved)); }

void ModelState::load(const SavedModel& saved) {
  load_weights(saved);
  if (!saved.training || name_of(saved.training->optimizer) != name_of(optimizer())) return;
  if (slots_of(saved.training->optimizer) != slots_of(optimizer())) return;
  compiled().write_slots(*saved.training);
  iteration_ = static_cast<std::uint64_t>(saved.training->iteration);
}

void ModelState::keep_replicas(int replicas) {
  const auto wanted = static_cast<std::size_t>(replicas);
  const bool matters = std::any_of(architecture_.layers().begin(), architecture_.layers().end(),
                                   [](const auto& layer) { return layer.class_name == "BatchNormalization"; });
  if (wanted == replicas_ || !matters) return;
  if (wanted < static_cast<std::size_t>(runtime_->world().size())) {
    if (runtime_->world().is_chief()) {
      log_warning("BatchNormalization saw " + std::to_string(wanted) +
                  " slices of each batch when the backup was made, " + "and sees " + std::to_string(replicas_) +
                  " now that there are more workers");
    }
    return;
  }
  replicas_ = wanted;
  compile(CompileOptions(compiled().options));
}

std::string ModelState::summary_of_division() const {
  if (!compiled_ || runtime_->world().size() == 1 || runtime_->options().division == Division::examples) return {};
  const std::string workers = std::to_string(runtime_->world().size()) + " workers";
  const DivisionChoice& choice = compiled_->choice;
  const std::string name = name_of(choice.division);
  return (name == "none" ? "Each of " + workers + " computes all" : "Divided by " + name + " over " + workers) +
         ", since " + choice.why + ":\n" + to_text(compiled_->layers);
}

void ModelState::keep_division(const std::string& division) {
  if (runtime_->options().division != Division::automatic || division == description_of_division()) return;
  const auto code = division.find(' ');
  kept_division_ = code == std::string::npos ? "-" : division.substr(code + 1);
  compile(CompileOptions(compiled().options));
}

std::string ModelState::description_of_division() {
  const auto& division = compiled().division;
  return name_of(division) + (division ? " " + division->code() : "");
}

std::string ModelState::division_in_words(const std::string& division, const std::string& workers) {
  int ranks = 0;
  std::from_chars(workers.data(), workers.data() + workers.size(), ranks);
  const Options& run = runtime_->options();
  const bool mixed = run.precision == Precision::mixed_bfloat16;
  return lockstep::division_in_words(division, lower(architecture_, compiled().options.loss, mixed, run.input_scale),
                                     ranks);
}

void ModelState::start(const Batch& batch) {
  const double begin = monotonic_seconds();
  runtime_->launcher().progress().step_begins();
  CompiledModel& model = compiled();
  model.communicator->gather_piece();
  StepContext context = model.feed->prepare(batch, iteration_, true);
  context.request = runtime_->launcher().request();
  if (!model.step->sums_metrics(++iteration_)) context.counted = {0, context.examples.size()};
  model.step->train(context, model.options.optimizer, iteration_);
  ++under_way_;
  log_.count_seconds(monotonic_seconds() - begin);
}

StepMetrics ModelState::finish() {
  const double begin = monotonic_seconds();
  CompiledModel& model = compiled();
  std::array<float, metric_places> sums{};
  --under_way_;
  if (model.step->sums_metrics(iteration_ - under_way_)) {
    model.executable->take_metrics(sums);
  } else {
    sums = own_metrics();
    sums[metric_leave] = sums[metric_leave_with_backup] = 0;  // not yet agreed on
  }
  if (sums[metric_leave_with_backup] > 0) request_ = std::max(request_, Request::leave_with_backup);
  if (sums[metric_leave] > 0) request_ = Request::leave;
  const StepMetrics metrics{sums[metric_loss], sums[metric_correct], sums[metric_count]};
  log_.add(metrics);
  log_.count_seconds(monotonic_seconds() - begin);
  if (log_.is_first_step()) {
    log_.end_first_step();
    model.step->reset_profile();
    (void)model.communicator->take_times();
  }
  tell_step(metrics);
  runtime_->move_on_writing();
  return metrics;
}

std::array<float, metric_places> ModelState::own_metrics() const {
  const CompiledModel& model = *compiled_;
  const ParameterSpec& place = model.plan.graph.parameters[model.plan.graph.metrics_parameter()];
  std::array<float, metric_places> sums{};
  model.executable->read(model.arenas.gradients.subspan(place.offset, sums.size()), sums);
  return sums;
}

void ModelState::tell_step(const StepMetrics& metrics) {
  const CommunicationTimes times = compiled_->communicator->take_times();
  wait_seconds_ += times.waiting + times.reducing;
  runtime_->launcher().progress().step_done({.step = iteration_ - under_way_,
                                             .epoch = static_cast<std::uint64_t>(position_.epoch),
                                             .loss = log_.epoch_so_far().metrics.loss(),
                                             .images = metrics.count,
                                             .allreduce_seconds = compiled_->step->profile().reduce,
                                             .wait_seconds = wait_seconds_});
}

StepMetrics ModelState::train(const Batch& batch) {
  start(batch);
  const StepMetrics metrics = finish();
  if (!loops_) leave_if_asked();
  return metrics;
}

void ModelState::leave_if_asked() {
  if (request_ == Request::leave) runtime_->leave("Leaving, as asked; no backups are kept, so training begins anew.");
}

void ModelState::test(const Batch& batch, StepMetrics& local) {
  CompiledModel& model = compiled();
  runtime_->tell_busy();
  model.step->settle();
  const StepContext context = model.feed->prepare(batch, iteration_, false);
  model.step->infer(context);
  const auto sums = own_metrics();
  local += {sums[metric_loss], sums[metric_correct], sums[metric_count]};
}

StepMetrics ModelState::all_reduce(const StepMetrics& local) {
  std::array<double, 3> sums{local.loss_sum, local.correct, local.count};
  compiled().communicator->all_reduce_sum(sums);
  return {sums[0], sums[1], sums[2]};
}

std::vector<float> ModelState::predict(const Dataset& data) {
  CompiledModel& model = compiled();
  model.feed->check_examples(data);
  model.step->settle();
  const auto outputs = static_cast<std::size_t>(architecture_.output_shape().elements());
  std::vector<float> all(data.size() * outputs);
  std::vector<std::uint32_t> order(data.size());
  std::iota(order.begin(), order.end(), 0U);
  StepContext context;
  std::visit([&](const auto& inputs) { context.data.inputs = inputs.data(); }, data.inputs);
  context.data.examples = data.size();
  for (std::size_t begin = 0; begin < data.size(); begin += model.feed->capacity()) {
    const std::size_t rows = std::min(model.feed->capacity(), data.size() - begin);
    runtime_->tell_busy();
    context.examples = std::span(order).subspan(begin, rows);
    model.step->predict(context);
    std::copy_n(model.executable->outputs().begin(), rows * outputs,
                all.begin() + static_cast<std::ptrdiff_t>(begin * outputs));
  }
  return all;
}

std::vector<Variable> ModelState::weights() {
  if (!compiled_) return values_;
  std::vector<std::vector<float>> values = compiled_->weights();
  std::vector<Variable> variables;
  for (const LayerInfo& layer : architecture_.layers()) {
    for (const ParameterInfo& parameter : layer.parameters) {
      std::vector<float>& its = values[variables.size()];
      variables.push_back({layer.name + "/" + parameter.name, parameter.shape, std::move(its)});
    }
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

void ModelState::set_loop_backups(std::unique_ptr<Backups> backups) { loop_backups_ = std::move(backups); }

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
  Logs logs = logs_of(log_.epoch_so_far().metrics);
  logs.insert(more.begin(), more.end());
  return log_.end_epoch(epoch, std::move(logs));
}

NamedTexts ModelState::identity() { return compiled().identity(); }

std::map<std::string, std::string> ModelState::made_by() {
  std::map<std::string, std::string> made_by = runtime_->backend().libraries();
  made_by["device"] = runtime_->backend().describe();
  made_by["number of workers"] = std::to_string(runtime_->world().size());
  made_by["division"] = description_of_division();
  made_by["gradient compression"] = to_string(runtime_->options().gradient_compression);
  made_by["plan"] = compiled().plan.digest();
  return made_by;
}

Snapshot& ModelState::take_snapshot() {
  CompiledModel& model = compiled();
  runtime_->finish_gathering();
  runtime_->tell_busy();
  model.step->settle();
  model.snapshot->take(model.arenas, *model.communicator, model.options, iteration_);
  return *model.snapshot;
}

RunReport ModelState::report() {
  CompiledModel& model = compiled();
  RunReport report;
  report.history = log_.history();
  report.evaluation = evaluation_;
  report.timing.seconds_to_first_step = log_.seconds_to_first_step();
  report.timing.steps = static_cast<std::int64_t>(iteration_);
  report.timing.backups = log_.backups();
  report.timing.ms_per_backup = 1000 * log_.seconds_per_backup();
  const StepProfile& profile = model.step->profile();
  if (profile.steps > 0) {
    std::map<std::string, double>& kinds = report.timing.profile_ms_per_step;
    kinds = profile.by_kind(model.plan);
    const double known = std::accumulate(kinds.begin(), kinds.end(), 0.0,
                                         [](double sum, const auto& kind) { return sum + kind.second; });
    const double total = log_.step_seconds() * 1000.0 / static_cast<double>(profile.steps);
    kinds["other"] = total - known;
    kinds["total"] = total;
    report.timing.operations_ms_per_step = profile.by_operation(model.plan);
  }
  return report;
}

std::function<void()> ModelState::write_to(const std::filesystem::path& path) {
  runtime_->finish_writing();
  Snapshot& snapshot = take_snapshot();
  if (!runtime_->world().is_chief()) return {};
  return [this, path, &snapshot, report = report()] {
    snapshot.use([&](const SavedModel& model) { save_model(path, model); });
    save_history(path.parent_path() / "history.json", report, *runtime_, compiled_->communicator->describe(),
                 record_of(compiled_->choice));
  };
}

void ModelState::save(const std::filesystem::path& path) {
  if (!takes_part_in_saving()) return;
  const auto write = write_to(path);
  compiled_->communicator->finish_gather();
  if (write) write();
}

void ModelState::save_later(const std::filesystem::path& path) {
  if (takes_part_in_saving()) write_later(write_to(path));
}

void ModelState::write_later(std::function<void()> job) {
  runtime_->write_later(*compiled().communicator, std::move(job));
}

}  // namespace lockstep
