// See fit.hpp.
#include "training/fit.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <iostream>
#include <span>
#include <string>

namespace lockstep {

namespace {

std::uint64_t steps_of(const FitOptions& options, std::uint64_t examples, std::uint64_t global_batch) {
  if (options.steps_per_epoch > 0) return static_cast<std::uint64_t>(options.steps_per_epoch);
  return (examples + global_batch - 1) / global_batch;
}

}  // namespace

FitLoop::FitLoop(Model& model, ModelState& state, const Dataset& data, const Dataset* validation,
                 const FitOptions& options)
    : model_(model),
      state_(state),
      data_(data),
      validation_(validation),
      options_(options),
      global_batch_(static_cast<std::uint64_t>(state.runtime().options().global_batch_size)),
      steps_(steps_of(options, data.size(), global_batch_)),
      bar_({.epochs = options.epochs,
            .steps = static_cast<int>(steps_),
            .verbose = state.runtime().speaks() ? state.runtime().options().verbose : 0,
            .terminal = detect_terminal(current_environment())},
           std::cout) {}

void FitLoop::run() {
  for_each_callback([&](Callback& callback) { callback.on_train_begin(model_); });
  for (int epoch = options_.initial_epoch; epoch < options_.epochs && !state_.stops(); ++epoch) run_epoch(epoch);
  for_each_callback([&](Callback& callback) { callback.on_train_end(model_); });
}

void FitLoop::run_epoch(int epoch) {
  for_each_callback([&](Callback& callback) { callback.on_epoch_begin(model_, epoch); });
  bar_.begin_epoch(epoch);
  StepMetrics sums;
  const std::size_t ahead = state_.steps_ahead();
  for (std::uint64_t step = 0; step < steps_ && !state_.stops(); ++step) {
    state_.start(batch_of(epoch, step));
    // Metrics are taken as late as the device likes, and all of them before the epoch ends.
    while (state_.under_way() >= ahead || (step + 1 == steps_ && state_.under_way() > 0)) {
      finish_step(epoch, step + 1 - state_.under_way(), sums);
    }
  }
  while (state_.under_way() > 0) static_cast<void>(state_.finish());  // of an epoch that a callback stopped
  Logs logs = state_.logs_of(sums);
  if (validation_ != nullptr && (epoch + 1) % std::max(1, options_.validation_freq) == 0) {
    for (const auto& [name, value] : model_.evaluate(*validation_)) logs["val_" + name] = value;
  }
  for_each_callback([&](Callback& callback) { callback.on_epoch_end(model_, epoch, logs); });
  bar_.end_epoch(state_.end_epoch(epoch, logs).logs);
}

Batch FitLoop::batch_of(int epoch, std::uint64_t step) const {
  const auto pass = static_cast<std::uint64_t>(epoch);
  if (options_.steps_per_epoch > 0) {  // one stream of whole batches, on and on
    return {&data_, (pass * steps_ + step) * global_batch_, global_batch_, options_.shuffle};
  }
  const std::uint64_t begin = step * global_batch_;  // one pass an epoch, its last batch perhaps shorter
  return {&data_, pass * data_.size() + begin, std::min<std::uint64_t>(global_batch_, data_.size() - begin),
          options_.shuffle};
}

void FitLoop::finish_step(int epoch, std::uint64_t step, StepMetrics& epoch_so_far) {
  epoch_so_far += state_.finish();
  for_each_callback(
      [&](Callback& callback) { callback.on_train_batch_end(model_, static_cast<std::int64_t>(step), epoch_so_far); });
  if (!state_.stops()) {
    check_loss(epoch_so_far, "epoch " + std::to_string(epoch + 1) + ", step " + std::to_string(step + 1));
  }
  const std::array<MetricValue, 2> shown{{{"loss", epoch_so_far.loss()}, {"accuracy", epoch_so_far.accuracy()}}};
  bar_.update(static_cast<int>(step + 1), std::span(shown).first(state_.has_metric(accuracy) ? 2 : 1));
}

}  // namespace lockstep
