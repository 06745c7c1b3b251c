// See model.hpp. What is collective stays in ModelState; here is what its user sees.
#include "training/backups.hpp"
#include "training/describe_steps.hpp"
#include "training/fit.hpp"
#include "training/model_state.hpp"
#include "training/shared_read.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/model.hpp>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <optional>
#include <utility>

namespace lockstep {

Model::Model(std::unique_ptr<ModelState> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

void Model::compile(const CompileOptions& options) { state_->compile(options); }

std::optional<CompileOptions> Model::compilation() const { return state_->compilation(); }

History Model::fit(const Dataset& data, const FitOptions& options) {
  if (options.validation_split < 0 || options.validation_split >= 1) {
    throw UsageError("validation_split is " + std::to_string(options.validation_split) +
                     " but must be at least 0 and less than 1");
  }
  if (options.validation_split > 0 && options.validation_data == nullptr) {
    const auto split = static_cast<std::size_t>(static_cast<double>(data.size()) * (1 - options.validation_split));
    const Dataset train = data.slice(0, split);
    const Dataset rest = data.slice(split, data.size());
    FitOptions whole = options;
    whole.validation_split = 0;
    whole.validation_data = &rest;
    return fit(train, whole);
  }
  state_->use(data);
  if (options.validation_data != nullptr) state_->use(*options.validation_data);
  state_->set_stops(false);
  const std::size_t first_record = state_->log().history().epochs.size();
  FitLoop(*this, *state_, data, options.validation_data, options).run();
  const auto& epochs = state_->log().history().epochs;
  return {{epochs.begin() + static_cast<std::ptrdiff_t>(first_record), epochs.end()}};
}

Logs Model::evaluate(const Dataset& data) {
  state_->use(data);
  const auto batch = static_cast<std::size_t>(state_->runtime().options().global_batch_size);
  StepMetrics local;
  for (std::size_t begin = 0; begin < data.size(); begin += batch) {
    state_->test({.data = &data, .position = begin, .size = std::min(batch, data.size() - begin), .shuffle = false},
                 local);
  }
  Logs logs = state_->logs_of(state_->all_reduce(local));
  state_->set_evaluation(logs);
  return logs;
}

std::vector<float> Model::predict(const Dataset& data) { return state_->predict(data); }

StepMetrics Model::train_step(const Batch& batch) {
  state_->use(*batch.data);
  const StepMetrics metrics = state_->train(batch);
  check_loss(metrics, "step " + std::to_string(state_->steps()));
  return metrics;
}

StepMetrics Model::test_step(const Batch& batch) {
  state_->use(*batch.data);
  StepMetrics local;
  state_->test(batch, local);
  return state_->all_reduce(local);
}

EpochRange Model::epochs(int epochs) {
  const Options& run = state_->runtime().options();
  state_->log().begin_epoch();
  state_->set_position({});
  if (run.backup_dir.empty()) {
    state_->set_loop_backups(nullptr);
  } else {
    const BackupAndRestore settings(run.backup_dir, {.save_freq = run.backup_save_freq});
    state_->set_loop_backups(
        std::make_unique<Backups>(*this, *state_, settings, std::vector<Callback*>(),
                                  NamedTexts{{"--steps-per-epoch", std::to_string(run.steps_per_epoch)}}));
    state_->loop_backups()->restore(epochs);
  }
  state_->set_loops();
  return {*state_, epochs};
}

BatchRange Model::batches(const Dataset& data, bool shuffle) {
  if (!state_->loops())
    throw UsageError("batches() belongs inside of a loop over epochs: for (int epoch : model.epochs(10))");
  state_->use(data);
  return {*state_, data, shuffle};
}

double& Model::kept(const std::string& name) { return state_->numbers()[name]; }

Logs Model::end_epoch(int epoch, const Logs& more) { return state_->end_epoch(epoch, more).logs; }

std::vector<Variable> Model::weights() const { return state_->weights(); }
void Model::set_weights(const std::vector<Variable>& weights) { state_->set_weights(weights); }
void Model::load_weights(const std::filesystem::path& path) {
  state_->runtime().finish_writing();
  const SharedModel file = read_model_file(state_->runtime(), path, &state_->architecture());
  check_weights(file, state_->architecture());
  state_->load_weights(file.model);
}

void Model::save(const std::filesystem::path& path) const { state_->save(path); }
void Model::save_later(const std::filesystem::path& path) const { state_->save_later(path); }

void Model::summary() const {
  if (!state_->runtime().speaks()) return;
  std::cout << state_->architecture().summary() << state_->summary_of_division() << std::flush;
}

std::string Model::predict_steps(const PredictionOptions& options) const {
  const auto compilation = state_->compilation();
  if (!compilation) throw UsageError("the model is not compiled yet; call model.compile(...) first");
  return describe_steps(state_->runtime(), state_->architecture(), *compilation, options);
}

double Model::learning_rate() const { return learning_rate_of(state_->optimizer()).at(state_->steps()); }

void Model::set_learning_rate(double learning_rate) { lockstep::set_learning_rate(state_->optimizer(), learning_rate); }

std::int64_t Model::iterations() const { return static_cast<std::int64_t>(state_->steps()); }

Logs Model::logs_of(const StepMetrics& metrics) const { return state_->logs_of(metrics); }

void Model::stop_training() { state_->set_stops(true); }

bool Model::is_chief() const { return state_->runtime().world().is_chief(); }

void Model::print(const std::string& line) const {
  if (state_->runtime().speaks()) std::cout << line << std::endl;
}

const Sequential& Model::architecture() const { return state_->architecture(); }

}  // namespace lockstep
