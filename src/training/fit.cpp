// See fit.hpp.
#include "training/fit.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <iostream>
#include <span>
#include <string>

namespace lockstep {

FitLoop::FitLoop(Model& model, ModelState& state, const Dataset& data, const Dataset* validation,
                 const FitOptions& options)
    : model_(model),
      state_(state),
      validation_(validation),
      options_(options),
      batches_(data, static_cast<std::uint64_t>(state.runtime().options().global_batch_size), options.steps_per_epoch,
               options.shuffle),
      bar_({.epochs = options.epochs,
            .steps = static_cast<int>(batches_.size()),
            .verbose = state.runtime().speaks() ? state.runtime().options().verbose : 0,
            .terminal = detect_terminal(current_environment())},
           std::cout) {
  std::vector<Callback*> others;
  const BackupAndRestore* settings = nullptr;
  for (const AnyCallback& callback : options.callbacks) {
    const auto* backup = dynamic_cast<const BackupAndRestore*>(&callback.get());
    if (backup != nullptr && settings != nullptr) throw UsageError("fit() takes one BackupAndRestore, not several");
    if (backup != nullptr) {
      settings = backup;
    } else {
      others.push_back(&callback.get());
    }
  }
  if (settings == nullptr) return;
  backups_.emplace(model, state, *settings, std::move(others),
                   NamedTexts{{"--steps-per-epoch", std::to_string(options.steps_per_epoch)},
                              {"the data", state.description_of(data)}});
}

void FitLoop::run() {
  state_.runtime().tell_busy();
  for_each_callback([&](Callback& callback) { callback.on_train_begin(model_); });
  state_.log().begin_epoch();
  state_.set_position({options_.initial_epoch, 0});
  if (backups_) backups_->restore(options_.epochs);
  // An epoch in whose middle training was stopped is still brought to its end.
  while (state_.position().step > 0 || (state_.position().epoch < options_.epochs && !state_.stops())) run_epoch();
  state_.runtime().finish_writing();
  for_each_callback([&](Callback& callback) { callback.on_train_end(model_); });
}

void FitLoop::run_epoch() {
  const int epoch = state_.position().epoch;
  const std::int64_t first_step = state_.position().step;
  // A run that goes on in the middle of an epoch has what this call made of the callbacks in their states.
  if (first_step == 0) for_each_callback([&](Callback& callback) { callback.on_epoch_begin(model_, epoch); });
  bar_.begin_epoch(epoch, static_cast<int>(first_step));
  run_steps();
  state_.runtime().tell_busy();  // with validation and callbacks
  Logs logs = state_.logs_of(state_.log().epoch_so_far().metrics);
  if (validation_ != nullptr && (epoch + 1) % std::max(1, options_.validation_freq) == 0) {
    for (const auto& [name, value] : model_.evaluate(*validation_)) logs["val_" + name] = value;
  }
  for_each_callback([&](Callback& callback) { callback.on_epoch_end(model_, epoch, logs); });
  bar_.end_epoch(state_.end_epoch(epoch, logs).logs);
  state_.set_position({epoch + 1, 0});
  if (backups_) backups_->after_epoch();
}

void FitLoop::run_steps() {
  const std::size_t ahead = state_.steps_ahead();
  const int epoch = state_.position().epoch;
  const auto first = static_cast<std::uint64_t>(state_.position().step);
  for (std::uint64_t step = first; step < batches_.size() && !state_.stops(); ++step) {
    state_.start(batches_.at(epoch, step));
    // Metrics are taken as late as the device likes, and all of them before the epoch ends or a backup is taken.
    const bool all = step + 1 == batches_.size() || (backups_ && backups_->due_after(state_.steps()));
    const auto must_finish = [&] { return all || state_.request() == Request::leave; };
    while (state_.under_way() >= ahead || (must_finish() && state_.under_way() > 0)) finish_step();
    if (backups_) {
      backups_->after_step();
    } else {
      state_.leave_if_asked();
    }
  }
  while (state_.under_way() > 0) static_cast<void>(state_.finish());  // of an epoch that a callback stopped
}

void FitLoop::finish_step() {
  static_cast<void>(state_.finish());
  const StepMetrics& so_far = state_.log().epoch_so_far().metrics;
  const int epoch = state_.position().epoch;
  const std::int64_t step = state_.position().step;
  for_each_callback([&](Callback& callback) { callback.on_train_batch_end(model_, step, so_far); });
  if (!state_.stops()) check_loss(so_far, "epoch " + std::to_string(epoch + 1) + ", step " + std::to_string(step + 1));
  const std::array<MetricValue, 2> shown{{{"loss", so_far.loss()}, {"accuracy", so_far.accuracy()}}};
  bar_.update(static_cast<int>(step + 1), std::span(shown).first(state_.has_metric(accuracy) ? 2 : 1));
  state_.set_position({epoch, step + 1});
}

}  // namespace lockstep
