// See model.hpp. What is collective stays in ModelState; here is what its user sees.
#include "report/progress_bar.hpp"
#include "training/model_state.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/training/model.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <utility>

namespace lockstep {

Model::Model(std::unique_ptr<ModelState> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

void Model::compile(const CompileOptions& options) { state_->compile(options); }

History Model::fit(const Dataset& data, const FitOptions& options) {
  state_->use(data);
  if (options.validation_data != nullptr) state_->use(*options.validation_data);
  const Options& run = state_->runtime().options();
  const auto batch = static_cast<std::uint64_t>(run.global_batch_size);
  const std::uint64_t examples = data.size();
  const std::uint64_t pass_steps = (examples + batch - 1) / batch;
  const std::uint64_t steps =
      options.steps_per_epoch > 0 ? static_cast<std::uint64_t>(options.steps_per_epoch) : pass_steps;

  ProgressBar bar({.epochs = options.epochs,
                   .steps = static_cast<int>(steps),
                   .verbose = state_->runtime().speaks() ? run.verbose : 0,
                   .terminal = detect_terminal(current_environment())},
                  std::cout);
  const bool with_accuracy = state_->has_metric(accuracy);
  const std::size_t ahead = state_->steps_ahead();
  const std::size_t first_record = state_->history().epochs.size();
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    bar.begin_epoch(epoch);
    StepMetrics sums;
    for (std::uint64_t step = 0; step < steps; ++step) {
      Batch next{.data = &data, .shuffle = options.shuffle};
      if (options.steps_per_epoch > 0) {  // one stream of whole batches, on and on
        next.position = (static_cast<std::uint64_t>(epoch) * steps + step) * batch;
        next.size = batch;
      } else {  // one pass an epoch, its last batch perhaps shorter
        next.position = static_cast<std::uint64_t>(epoch) * examples + step * batch;
        next.size = std::min(batch, examples - step * batch);
      }
      state_->start(next);
      // Metrics are taken as late as the device likes, and all of them before the epoch ends.
      while (state_->under_way() >= ahead || (step + 1 == steps && state_->under_way() > 0)) {
        const StepMetrics metrics = state_->finish();
        const std::uint64_t finished = step + 1 - state_->under_way();
        if (!std::isfinite(metrics.loss_sum)) {
          throw DataError("the loss became " + std::to_string(metrics.loss_sum) + " in epoch " +
                          std::to_string(epoch + 1) + ", step " + std::to_string(finished) +
                          "; a smaller --learning-rate may help");
        }
        sums += metrics;
        const std::array<MetricValue, 2> shown{{{"loss", sums.loss()}, {"accuracy", sums.accuracy()}}};
        bar.update(static_cast<int>(finished), std::span(shown).first(with_accuracy ? 2 : 1));
      }
    }
    Logs validation;
    if (options.validation_data != nullptr) {
      for (const auto& [name, value] : evaluate(*options.validation_data)) validation["val_" + name] = value;
    }
    bar.end_epoch(state_->end_epoch(epoch, validation).logs);
  }
  History history;
  const auto& epochs = state_->history().epochs;
  history.epochs.assign(epochs.begin() + static_cast<std::ptrdiff_t>(first_record), epochs.end());
  return history;
}

Logs Model::evaluate(const Dataset& data) {
  state_->use(data);
  const auto batch = static_cast<std::size_t>(state_->runtime().options().global_batch_size);
  StepMetrics local;
  for (std::size_t begin = 0; begin < data.size(); begin += batch) {
    state_->test({.data = &data, .position = begin, .size = std::min(batch, data.size() - begin), .shuffle = false},
                 local);
  }
  const Logs logs = state_->logs_of(state_->all_reduce(local));
  state_->set_evaluation(logs);
  return logs;
}

std::vector<float> Model::predict(const Dataset& data) { return state_->predict(data); }

StepMetrics Model::train_step(const Batch& batch) {
  state_->use(*batch.data);
  return state_->train(batch);
}

StepMetrics Model::test_step(const Batch& batch) {
  state_->use(*batch.data);
  StepMetrics local;
  state_->test(batch, local);
  return state_->all_reduce(local);
}

Logs Model::end_epoch(int epoch, const Logs& more) { return state_->end_epoch(epoch, more).logs; }

std::vector<Variable> Model::weights() const { return state_->weights(); }
void Model::set_weights(const std::vector<Variable>& weights) { state_->set_weights(weights); }
void Model::save(const std::filesystem::path& path) const { state_->save(path); }

void Model::summary() const {
  if (state_->runtime().speaks()) std::cout << state_->architecture().summary() << std::flush;
}

const Sequential& Model::architecture() const { return state_->architecture(); }

}  // namespace lockstep
