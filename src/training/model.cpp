// See model.hpp.
#include "core/environment.hpp"
#include "core/printable.hpp"
#include "report/terminal.hpp"
#include "session/describe_step_times.hpp"
#include "session/epoch_batches.hpp"
#include "session/find_mistakes.hpp"
#include "session/read_on_chief.hpp"
#include "training/fit_loop.hpp"
#include "training/model_parts.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/model.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

namespace lockstep {

namespace {

/// Weighs the examples of a dataset by their classes, for as long as fit() runs.
class ClassWeights {
 public:
  ClassWeights(const RankModel& model, const Dataset& data, const std::map<int, double>& weights) : model_(model) {
    model.compiled().feed->set_class_weights(data, weights, model.compiled().outputs);
  }
  ~ClassWeights() { model_.compiled().feed->clear_class_weights(); }
  ClassWeights(const ClassWeights&) = delete;
  ClassWeights& operator=(const ClassWeights&) = delete;

 private:
  const RankModel& model_;
};

}  // namespace

Model::Model(std::unique_ptr<ModelParts> parts) : parts_(std::move(parts)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

ModelParts& parts_of(Model& model) { return *model.parts_; }

void Model::compile(const CompileOptions& options) {
  parts_->session.finish_steps();
  parts_->model.compile(options);
}

std::optional<CompileOptions> Model::compile_options() const { return parts_->model.compile_options(); }

namespace {

void check(const FitOptions& options) {
  const auto require = [](bool holds, std::string_view name, auto value, std::string_view range) {
    if (!holds) throw UsageError(fmt::format("fit()'s {} is {}, but must be {}", name, value, range));
  };
  require(options.epochs >= 0, "epochs", options.epochs, "at least 0");
  require(options.initial_epoch >= 0, "initial_epoch", options.initial_epoch, "at least 0");
  require(options.steps_per_epoch >= 0, "steps_per_epoch", options.steps_per_epoch, "at least 0");
  require(options.validation_freq >= 1, "validation_freq", options.validation_freq, "at least 1");
  const double split = options.validation_split;
  require(split >= 0 && split < 1, "validation_split", split, "at least 0 and less than 1");  // NaN is neither
}

}  // namespace

History Model::fit(const Dataset& data, const FitOptions& options) {
  parts_->run_context->begin_service();
  if (parts_->is_in_epoch_loop) {  // whose position it would move
    throw UsageError(
        "fit() is called in a loop over epochs(); call train_step() for each of batches() there, or fit() alone");
  }
  check(options);
  parts_->session.finish_steps();
  if (options.validation_split > 0 && options.validation_data == nullptr) {
    const auto split = static_cast<std::size_t>(static_cast<double>(data.size()) * (1 - options.validation_split));
    if (split == 0) {
      throw UsageError(
          fmt::format("validation_split is {}, which leaves none of the {} examples for training; make it "
                      "smaller",
                      options.validation_split, data.size()));
    }
    const Dataset train = data.slice(0, split);
    const Dataset rest = data.slice(split, data.size());
    FitOptions whole = options;
    whole.validation_split = 0;
    whole.validation_data = &rest;
    return fit(train, whole);
  }
  const std::size_t batch_size = parts_->run_context->batch_size(options.batch_size);
  parts_->run_context->require_equal_on_all_ranks("the batch size of fit()", std::to_string(batch_size));
  parts_->model.validate(data);
  if (options.validation_data != nullptr) parts_->model.validate(*options.validation_data);
  parts_->run_context->require_equal_on_all_ranks("class_weight of fit()", to_string(options.class_weight));
  parts_->run_context->require_equal_on_all_ranks(
      "the options of fit()",
      fmt::format("epochs={}, steps_per_epoch={}, validation_freq={}, initial_epoch={}, shuffle={}", options.epochs,
                  options.steps_per_epoch, options.validation_freq, options.initial_epoch, options.shuffle));
  const ClassWeights class_weights(parts_->model, data, options.class_weight);
  parts_->session.set_stop_training(false);
  const std::size_t first_record = parts_->session.log().history().epochs.size();
  FitLoop(*this, *parts_, data, options.validation_data, options).run();
  parts_->model.compiled().release_data();
  const auto& epochs = parts_->session.log().history().epochs;
  return {{epochs.begin() + static_cast<std::ptrdiff_t>(first_record), epochs.end()}};
}

void Model::validate(const Dataset& data) const {
  parts_->run_context->begin_service();
  parts_->model.validate(data);
}

namespace {

/// Of a batch, or of an epoch's batches. Nothing, if the result is known already.
MetricSums metrics_of(ModelParts& parts, const auto& batches) {
  CompiledModel& model = parts.model.compiled();
  if (!parts.run_context->is_replaying()) return model.evaluate(batches);
  MetricSums none;
  none.sums.resize(model.metrics->num_sums());
  return none;
}

}  // namespace

Logs evaluate(ModelParts& parts, const Dataset& data, const InferenceOptions& options) {
  parts.run_context->begin_service();
  parts.session.take_metrics_in_flight();
  parts.model.validate(data);
  const EpochBatches batches(data, parts.run_context->batch_size(options.batch_size), 0, false);
  return parts.session.to_logs(parts.model.compiled().all_reduce(metrics_of(parts, batches)));
}

Logs Model::evaluate(const Dataset& data, const InferenceOptions& options) {
  Logs logs = lockstep::evaluate(*parts_, data, options);
  const std::size_t batch_size = parts_->run_context->batch_size(options.batch_size);
  parts_->session.set_evaluation(logs, find_mistakes(parts_->model.compiled(), data, batch_size));
  parts_->model.compiled().release_data();
  return logs;
}

std::vector<float> Model::predict(const Dataset& data, const InferenceOptions& options) {
  if (const std::size_t outputs = architecture().outputs().size(); outputs != 1) {
    throw UsageError(
        fmt::format("predict() returns one output, but the model has {}; call predict_outputs()", outputs));
  }
  return std::move(predict_outputs(data, options).front());
}

std::vector<std::vector<float>> Model::predict_outputs(const Dataset& data, const InferenceOptions& options) {
  parts_->run_context->begin_service();
  return parts_->model.compiled().predict(data, parts_->run_context->batch_size(options.batch_size));
}

namespace {

void train_on_ticket(ModelParts& parts, const Batch& batch) {
  if (!parts.ticket || std::exchange(parts.is_ticket_used, true)) {
    throw UsageError(
        "train_step() trains on a batch for which parameter servers wait no longer; with --ps-mode asynchronous or "
        "--replicas-to-aggregate, call it once for each batch of batches()");
  }
  parts.session.start_step(batch, &*parts.ticket);
  parts.rounds->add(parts.session.finish_step());
}

}  // namespace

StepMetrics Model::train_step(const Batch& batch) {
  parts_->run_context->begin_service();
  if (!parts_->is_in_epoch_loop && parts_->run_context->is_in_backed_up_loop()) {
    throw UsageError(
        "the backups of a loop hold the model whose epochs() it runs over, but the loop trains another model too; set "
        "--backup-save-freq never, so that a restarted job starts over with both");
  }
  parts_->model.validate(*batch.data);
  TrainingSession& session = parts_->session;
  if (parts_->model.compiled().ticketed != nullptr) {
    train_on_ticket(*parts_, batch);
  } else {
    session.start_step(batch);
    session.finish_steps(session.max_in_flight() - 1);
    if (!parts_->is_in_epoch_loop) session.leave_if_requested();
  }
  return {session, session.iterations()};
}

const MetricSums& StepMetrics::get() const {
  if (session_->iterations() != iteration_) {
    throw UsageError(
        fmt::format("the metrics of step {} are read after step {} has begun; read them before the next train_step(), "
                    "or copy them: const MetricSums metrics = model.train_step(batch)",
                    iteration_, session_->iterations()));
  }
  return session_->read_last_step();
}

MetricSums Model::test_step(const Batch& batch) {
  parts_->run_context->begin_service();
  parts_->session.take_metrics_in_flight();
  parts_->model.validate(*batch.data);
  return parts_->model.compiled().all_reduce(metrics_of(*parts_, batch));
}

EpochRange Model::epochs(int epochs) {
  parts_->run_context->begin_service();
  const Options& run = parts_->run_context->options();
  parts_->session.finish_steps();
  parts_->session.log().begin_epoch();
  parts_->session.set_position({});
  parts_->batches_in_epoch = 0;
  parts_->loop_backups.reset();
  if (!run.backup_dir.empty()) {
    const BackupAndRestore settings(run);
    parts_->loop_backups =
        std::make_unique<BackupManager>(parts_->session, parts_->checkpoints, settings, std::vector<Callback*>(),
                                        KeyValues{{"--steps-per-epoch", std::to_string(run.steps_per_epoch)}});
    own_model_directory(*parts_->run_context, parts_->loop_backups->contents(epochs),
                        parts_->loop_backups->may_resume());
    parts_->loop_backups->restore(epochs);
  } else {
    own_model_directory(*parts_->run_context, {.settings = fmt::format("{} epochs", epochs), .origin = {}}, false);
  }
  parts_->model.compiled().record_parallelism();
  return {*parts_, epochs};
}

BatchRange Model::batches(const Dataset& data, const BatchOptions& options) {
  parts_->run_context->begin_service();
  if (!parts_->is_in_epoch_loop && options.shuffle) {
    throw UsageError(
        "call batches() of training data inside a loop over epochs: for (int epoch : model.epochs(10)); to evaluate "
        "outside such a loop, call batches(data, {.shuffle = false})");
  }
  parts_->model.validate(data);
  if (options.shuffle && parts_->loop_backups) {
    const std::int64_t before = parts_->batches_in_epoch;
    const std::string where = before == 0 ? "" : fmt::format(" from step {} of an epoch", before + 1);
    parts_->loop_backups->set_job_setting("the data" + where, parts_->model.compiled().feed->data_description(data));
    parts_->loop_backups->set_job_setting("--global-batch-size" + where,
                                          std::to_string(parts_->run_context->batch_size(options.batch_size)));
  }
  return {*parts_, data, options};
}

double& Model::tracked(const std::string& name) { return parts_->session.tracked()[name]; }

Logs Model::end_epoch(int epoch, const Logs& more) {
  parts_->session.finish_steps();
  parts_->session.check_weights(fmt::format("epoch {}", epoch + 1));
  Logs logs = parts_->session.end_epoch(epoch, more).logs;
  parts_->checkpoints.write_live_report();
  return logs;
}

std::vector<NamedTensor> Model::weights() const { return parts_->model.weights(); }
void Model::set_weights(const std::vector<NamedTensor>& weights) { parts_->model.set_weights(weights); }
void Model::load_weights(const std::filesystem::path& path) {
  parts_->run_context->writer().wait();
  const LoadedModel file = read_model_file(*parts_->run_context, path, &parts_->model.architecture());
  check_weights(file.path, file.model.weights, parts_->model.architecture());
  parts_->model.load_weights(file.model);
  parts_->model.add_to_origin(file);
}

void Model::save(const std::filesystem::path& path) const {
  parts_->run_context->begin_service();
  parts_->checkpoints.save(path);
}
void Model::save_async(const std::filesystem::path& path) const {
  parts_->run_context->begin_service();
  parts_->checkpoints.save_async(path);
}

void Model::summary() const {
  if (!parts_->run_context->prints()) return;
  const int width = summary_width(current_environment());
  std::cout << printable(parts_->model.architecture().summary(width) + parts_->model.sharding_summary()) << std::flush;
}

std::string Model::estimate_step_time(const NetworkOptions& options) const {
  const auto compile_options = parts_->model.compile_options();
  if (!compile_options) throw UsageError("the model is not compiled yet; call model.compile(...) first");
  const CompiledModel& compiled = parts_->model.compiled();
  const CompiledStep& step = compiled.training != nullptr ? *compiled.training : *compiled.steps.front();
  return describe_step_times(*parts_->run_context, parts_->model.architecture(), *compile_options, step.batch_size,
                             options);
}

std::string Model::describe_kernels() const { return parts_->model.kernels_summary(); }

double Model::learning_rate() const {
  return learning_rate_of(parts_->model.optimizer()).at(parts_->session.iterations());
}

void Model::set_learning_rate(double learning_rate) {
  lockstep::set_learning_rate(parts_->model.optimizer(), learning_rate);
}

std::int64_t Model::iterations() const { return static_cast<std::int64_t>(parts_->session.iterations()); }

Logs Model::to_logs(const MetricSums& metrics) const { return parts_->session.to_logs(metrics); }

void Model::stop_training() { parts_->session.set_stop_training(true); }

bool Model::is_chief() const { return parts_->run_context->world().is_chief(); }

void Model::print_line(const std::string& line) const { parts_->run_context->print(line); }

const Architecture& Model::architecture() const { return parts_->model.architecture(); }

}  // namespace lockstep
