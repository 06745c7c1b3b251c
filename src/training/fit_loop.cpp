// See fit_loop.hpp.
#include "training/fit_loop.hpp"

#include "core/log.hpp"
#include "session/mirrors.hpp"
#include "session/training_rounds.hpp"

#include <lockstep/core/error.hpp>

#include <cxxabi.h>
#include <fmt/format.h>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

namespace lockstep {

namespace {

/// "TerminateOnNaN, TensorBoard(log_dir=logs, update_freq=epoch)"; "none" for an empty list.
std::string describe(const std::vector<Callback*>& callbacks) {
  std::string names;
  for (const Callback* callback : callbacks) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> demangled(
        abi::__cxa_demangle(typeid(*callback).name(), nullptr, nullptr, &status), &std::free);
    const std::string name = demangled ? demangled.get() : typeid(*callback).name();
    constexpr std::string_view own = "lockstep::";
    const std::string settings = callback->settings();
    names += (names.empty() ? "" : ", ") + (name.starts_with(own) ? name.substr(own.size()) : name);
    if (!settings.empty()) names += "(" + settings + ")";
  }
  return names.empty() ? "none" : names;
}

/// Ctrl-C stops training after a step while this exists.
class InterruptibleLoop {
 public:
  explicit InterruptibleLoop(RunContext& run_context) : run_context_(run_context) { run_context.begin_training_loop(); }
  ~InterruptibleLoop() { run_context_.end_training_loop(); }
  InterruptibleLoop(const InterruptibleLoop&) = delete;
  InterruptibleLoop& operator=(const InterruptibleLoop&) = delete;

 private:
  RunContext& run_context_;
};

}  // namespace

std::string to_string(const std::map<int, double>& class_weight) {
  std::string text;
  for (const auto& [of_class, weight] : class_weight)
    text += fmt::format("{}{}: {:.17g}", text.empty() ? "" : ", ", of_class, weight);
  return "{" + text + "}";
}

FitLoop::FitLoop(Model& model, ModelParts& parts, const Dataset& data, const Dataset* validation,
                 const FitOptions& options)
    : model_(model),
      session_(parts.session),
      validation_(validation),
      options_(options),
      batches_(data, parts.run_context->batch_size(options.batch_size), options.steps_per_epoch, options.shuffle),
      bar_({.epochs = options.epochs,
            .steps = static_cast<int>(batches_.size()),
            .verbose = parts.run_context->prints() ? parts.run_context->options().verbose : 0,
            .terminal = detect_terminal(current_environment())},
           std::cout) {
  warn_of_large_batch(data.size());
  std::vector<Callback*> others;
  const BackupAndRestore* settings = nullptr;
  for (const AnyCallback& callback : options.callbacks) {
    const BackupAndRestore* backup = callback.get().backups();
    if (backup != nullptr && settings != nullptr) throw UsageError("fit() takes one BackupAndRestore, not several");
    if (backup != nullptr) {
      settings = backup;
    } else {
      others.push_back(&callback.get());
    }
  }
  if (settings == nullptr) return;
  const std::string names = describe(others);
  backups_.emplace(
      parts.session, parts.checkpoints, *settings, std::move(others),
      KeyValues{{"the list of callbacks", names},
                {"--steps-per-epoch", std::to_string(options.steps_per_epoch)},
                {"class_weight of fit()", to_string(options.class_weight)},
                {"initial_epoch of fit()", std::to_string(options.initial_epoch)},
                {"shuffle of fit()", options.shuffle ? "true" : "false"},
                {"validation_freq of fit()", std::to_string(options.validation_freq)},
                {"the data", parts.model.compiled().feed->data_description(data)},
                {"the validation data",
                 validation == nullptr ? "none" : parts.model.compiled().feed->data_description(*validation)},
                {"--global-batch-size", std::to_string(parts.run_context->batch_size(options.batch_size))}});
}

void FitLoop::warn_of_large_batch(std::size_t examples) const {
  const std::size_t batch = session_.run_context().batch_size(options_.batch_size);
  if (options_.steps_per_epoch > 0 || batch <= examples || !session_.run_context().world().is_chief()) return;
  log_warning(
      fmt::format("the global batch size is {}, but there are {} training examples, so each epoch is one step; "
                  "a smaller --global-batch-size makes more steps",
                  batch, examples));
}

void FitLoop::run() {
  const InterruptibleLoop interruptible(session_.run_context());
  session_.run_context().report_busy();
  own_model_directory(session_.run_context(),
                      backups_ ? backups_->contents(options_.epochs)
                               : JobContents{.settings = fmt::format("{} epochs", options_.epochs), .origin = {}},
                      backups_ && backups_->may_resume());
  for_each_callback([&](Callback& callback) { callback.on_train_begin(model_); });
  session_.log().begin_epoch();
  session_.set_position({options_.initial_epoch, 0});
  if (backups_) backups_->restore(options_.epochs);
  session_.model().compiled().record_parallelism();
  // If the backup was taken after stop_training() in the middle of an epoch, that epoch is still ended.
  while (session_.position().step > 0 || (session_.position().epoch < options_.epochs && !session_.stop_training()))
    run_epoch();
  if (backups_) backups_->finish();
  session_.run_context().writer().wait();
  session_.model().compiled().use_averages();
  compare_mirrors(session_.model().compiled());
  for_each_callback([&](Callback& callback) { callback.on_train_end(model_); });
}

void FitLoop::run_epoch() {
  const int epoch = session_.position().epoch;
  const std::int64_t first_step = session_.position().step;
  // When training resumes in the middle of an epoch, the restored callback states already include this call's effect.
  if (first_step == 0) for_each_callback([&](Callback& callback) { callback.on_epoch_begin(model_, epoch); });
  bar_.begin_epoch(epoch, static_cast<int>(first_step));
  if (session_.model().compiled().ticketed == nullptr) {
    run_steps();
  } else {
    run_rounds();
  }
  if (!session_.stop_training()) session_.check_weights(fmt::format("epoch {}", epoch + 1));
  session_.run_context().report_busy();  // validation and callbacks may take long
  Logs logs = session_.to_logs(session_.log().epoch_so_far().metrics);
  if (validation_ != nullptr && (epoch + 1) % options_.validation_freq == 0) {
    for (const auto& [name, value] : evaluate(parts_of(model_), *validation_, {.batch_size = options_.batch_size}))
      logs["val_" + name] = value;
  }
  for_each_callback([&](Callback& callback) { callback.on_epoch_end(model_, epoch, logs); });
  bar_.end_epoch(session_.end_epoch(epoch, logs).logs);
  parts_of(model_).checkpoints.write_live_report();
  session_.set_position({epoch + 1, 0});
  if (backups_) backups_->after_epoch();
}

void FitLoop::run_steps() {
  const std::size_t max_in_flight = session_.max_in_flight();
  const int epoch = session_.position().epoch;
  const auto first = static_cast<std::uint64_t>(session_.position().step);
  for (std::uint64_t step = first; step < batches_.size() && !session_.stop_training(); ++step) {
    session_.start_step(batches_.at(epoch, step));
    // Leave steps in flight as long as the device allows, but finish all before the epoch ends or a backup is taken.
    const bool finish_all = step + 1 == batches_.size() || (backups_ && backups_->is_due_after(session_.steps_made()));
    const auto must_finish = [&] { return finish_all || session_.request() == StopRequest::after_this_step; };
    while (session_.in_flight() >= max_in_flight || (must_finish() && session_.in_flight() > 0)) finish_step();
    if (backups_) {
      backups_->after_step();
    } else {
      session_.leave_if_requested();
    }
  }
  while (session_.in_flight() > 0) static_cast<void>(session_.finish_step());  // if a callback stopped the epoch
}

void FitLoop::finish_step() {
  static_cast<void>(session_.finish_step());
  const auto [epoch, step] = session_.position();
  call_batch_end(step);
  check_loss(step);
  update_bar(step);
  session_.set_position({epoch, step + 1});
}

void FitLoop::call_batch_end(std::int64_t step) const {
  const MetricSums& so_far = session_.log().epoch_so_far().metrics;
  for_each_callback([&](Callback& callback) { callback.on_train_batch_end(model_, step, so_far); });
}

void FitLoop::check_loss(std::int64_t step) const {
  if (session_.stop_training()) return;
  session_.check_loss(session_.log().epoch_so_far().metrics,
                      fmt::format("epoch {}, step {}", session_.position().epoch + 1, step + 1));
}

void FitLoop::update_bar(std::int64_t step) {
  const MetricSums& so_far = session_.log().epoch_so_far().metrics;
  shown_.clear();
  session_.visit_values(so_far, [this](std::string_view name, double value) { shown_.push_back({name, value}); });
  bar_.update(static_cast<int>(step + 1), shown_);
}

void FitLoop::run_rounds() {
  const int epoch = session_.position().epoch;
  TrainingRounds rounds(session_, backups_ ? &*backups_ : nullptr, batches_.size(), batches_);
  while (const std::optional<Ticket> ticket = rounds.next_ticket()) {
    const Batch batch = batches_.at(epoch, ticket->step);
    const auto step = static_cast<std::int64_t>(ticket->step);
    if (session_.has_work(batch, *ticket)) {
      session_.start_step(batch, &*ticket);
      rounds.add(session_.finish_step());
      call_batch_end(step);
    }
    update_bar(step);
  }
}

}  // namespace lockstep
