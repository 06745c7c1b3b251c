// See backups.hpp.
#include "training/backups.hpp"

#include "core/clock.hpp"
#include "core/log.hpp"
#include "training/describe_options.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace lockstep {

namespace {

KeptValues to_kept(CallbackState state) {
  KeptValues kept{std::move(state.numbers), {}};
  for (Variable& weight : state.weights) kept.arrays.push_back({weight.name, weight.shape, std::move(weight.values)});
  return kept;
}

CallbackState to_callback_state(const KeptValues& kept) {
  CallbackState state{kept.numbers, {}};
  for (const SavedTensor& array : kept.arrays) state.weights.push_back({array.name, array.shape, array.values});
  return state;
}

/// "step 12 of epoch 3/10"; at an epoch's first step "epoch 3/10".
std::string describe(const TrainingState& state, int epochs) {
  const std::string epoch = "epoch " + std::to_string(state.epoch + 1) + "/" + std::to_string(epochs);
  if (state.stopped || state.epoch >= epochs) return "training was complete";
  return state.step == 0 ? epoch : "step " + std::to_string(state.step + 1) + " of " + epoch;
}

std::string describe(const std::optional<double>& number) {
  std::ostringstream text;
  if (number) text << *number;
  return number ? text.str() : "none";
}

}  // namespace

Backups::Backups(Model& model, ModelState& state, const BackupAndRestore& settings, std::vector<Callback*> callbacks,
                 NamedTexts job)
    : model_(model),
      state_(state),
      errors_before_(std::uncaught_exceptions()),
      directory_(settings.directory()),
      options_(settings.options()),
      fit_(state.runtime().count_fit()),
      callbacks_(std::move(callbacks)),
      job_(std::move(job)) {
  const Options& run = state.runtime().options();
  for (auto& text : state.identity()) job_.push_back(std::move(text));
  job_.emplace_back("--seed", std::to_string(run.seed));
  job_.emplace_back("--global-batch-size", std::to_string(run.global_batch_size));
  job_.emplace_back("--precision", to_string(run.precision));
  job_.emplace_back("--input-scale", describe(run.input_scale));
}

Backups::~Backups() {
  if (std::uncaught_exceptions() > errors_before_) state_.runtime().keep_backups();
}

void Backups::restore(int epochs) {
  if (options_.save_freq == BackupOptions::never) return;
  Runtime& runtime = state_.runtime();
  const Resume resume = runtime.options().resume;
  const auto find = [&]() -> std::optional<SharedModel> {
    if (resume == Resume::never) {
      if (fit_ == 1) directory_.clear();
      return std::nullopt;
    }
    auto newest = directory_.newest(fit_, log_warning);
    if (newest) return SharedModel{newest->path.string(), std::move(newest->model)};
    if (resume == Resume::require && fit_ == 1) {
      throw UsageError("--resume require: there is no backup in " + directory_.path().string() +
                       "; name the right --backup-dir, or use --resume auto");
    }
    return std::nullopt;
  };
  runtime.finish_writing();
  const std::optional<SharedModel> backup = read_on_chief(runtime, find);
  runtime.remove_at_end(directory_);
  if (!backup) return;
  const TrainingState saved = training_state_from(*backup->model.state, backup->path);
  adopt(*backup, saved);
  if (runtime.speaks()) model_.print("Resuming from " + backup->path + ": " + describe(saved, epochs));
}

void Backups::check_job(const std::string& path, const TrainingState& state) const {
  for (const auto& [what, value] : job_) {
    const auto then = state.job.find(what);
    if (then == state.job.end() || then->second == value) continue;
    const auto [before, now] = around_difference(then->second, value);
    throw UsageError(path + " is a backup of another job: " + what + " was " + before + " then, and is " + now +
                     " now; start with the same as then, or begin anew with --resume never");
  }
}

void Backups::adopt(const SharedModel& backup, const TrainingState& saved) {
  check_job(backup.path, saved);
  check_weights(backup, state_.architecture());
  state_.keep_replicas(saved.replicas);
  const auto workers = saved.made_by.find("number of workers");
  const auto division = saved.made_by.find("division");
  const bool same_workers =
      workers != saved.made_by.end() && workers->second == std::to_string(state_.runtime().world().size());
  if (same_workers && division != saved.made_by.end()) state_.keep_division(division->second);
  state_.load(backup.model);
  if (learning_rate_of(state_.optimizer()).is_constant()) {
    set_learning_rate(state_.optimizer(), saved.learning_rate);
  }
  state_.set_position({saved.epoch, saved.step});
  state_.set_stops(saved.stopped);
  state_.log().restore({{saved.loss_sum, saved.correct, saved.count}, saved.seconds}, saved.history);
  for (const auto& [name, value] : saved.numbers) state_.numbers()[name] = value;  // whose places the loop may hold
  if (saved.callbacks.size() != callbacks_.size()) {
    throw UsageError(backup.path + " is a backup of a fit with " + std::to_string(saved.callbacks.size()) +
                     " callbacks, but there are " + std::to_string(callbacks_.size()) +
                     " now; start with the same as then, or begin anew with --resume never");
  }
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    callbacks_[i]->restore_state(model_, to_callback_state(saved.callbacks[i]));
  }
  warn_of_difference(saved);
}

/// Only the same gives the same bits. Of several differences the first is told.
void Backups::warn_of_difference(const TrainingState& saved) const {
  if (!state_.runtime().world().is_chief()) return;
  const std::map<std::string, std::string> made_by = state_.made_by();
  for (const auto& [what, now] : made_by) {
    const auto then = saved.made_by.find(what);
    if (then == saved.made_by.end() || then->second == now) continue;
    std::string difference = then->second + " then, " + now + " now";
    std::string remedy;
    if (what == "division") {
      const auto workers = saved.made_by.find("number of workers");
      const std::string before = workers == saved.made_by.end() ? made_by.at("number of workers") : workers->second;
      difference = "then " + state_.division_in_words(then->second, before) + "; now " +
                   state_.division_in_words(now, made_by.at("number of workers"));
      remedy = "; to go on as before, start as many workers as then with --division auto";
    }
    log_warning("training goes on with another " + what + " than before (" + difference +
                "), so its numbers will differ in their last digits from those of an unbroken run" + remedy);
    return;
  }
}

TrainingState Backups::capture() const {
  TrainingState saved;
  const Position position = state_.position();
  saved.epoch = position.epoch;
  saved.step = position.step;
  saved.stopped = state_.stops();
  saved.learning_rate = learning_rate_of(state_.optimizer()).at(state_.steps());
  const EpochSoFar& epoch = state_.log().epoch_so_far();
  saved.loss_sum = epoch.metrics.loss_sum;
  saved.correct = epoch.metrics.correct;
  saved.count = epoch.metrics.count;
  saved.seconds = epoch.seconds;
  saved.history = state_.log().history();
  saved.numbers = state_.numbers();
  for (const Callback* callback : callbacks_) saved.callbacks.push_back(to_kept(callback->save_state()));
  saved.replicas = static_cast<int>(state_.replicas());
  saved.job = {job_.begin(), job_.end()};
  saved.made_by = state_.made_by();
  return saved;
}

bool Backups::due_after(std::uint64_t step) const noexcept {
  return options_.save_freq > 0 && step % static_cast<std::uint64_t>(options_.save_freq) == 0;
}

void Backups::after_step() {
  state_.runtime().check_writing();
  const bool is_due = due_after(state_.steps());
  if (state_.request() == Request::leave || (is_due && state_.request() == Request::leave_with_backup)) {
    save_and_leave();
  }
  if (is_due) save();
}

void Backups::after_epoch() {
  if (options_.save_freq != BackupOptions::every_epoch) return;
  if (state_.request() != Request::none) save_and_leave();
  save();
}

void Backups::save_and_leave() {
  Runtime& runtime = state_.runtime();
  if (options_.save_freq == BackupOptions::never) state_.leave_if_asked();
  runtime.finish_writing();
  save();
  const auto [epoch, step] = state_.position();
  runtime.leave("Leaving, as asked, before step " + std::to_string(step + 1) + " of epoch " +
                std::to_string(epoch + 1) + ".");
}

void Backups::finish() { state_.runtime().finish_writing(); }

void Backups::save() {
  Runtime& runtime = state_.runtime();
  if (!state_.takes_part_in_saving()) return;
  std::array<std::byte, 1> busy{runtime.is_writing() ? std::byte{1} : std::byte{0}};
  if (state_.is_divided()) runtime.control().broadcast(busy, 0);  // all of them take part, if the chief does
  if (busy[0] != std::byte{0}) return;
  const double begin = monotonic_seconds();
  Snapshot& snapshot = state_.take_snapshot();
  std::function<void()> write;
  if (runtime.world().is_chief()) {
    write = [directory = directory_, keep = options_.keep, name = BackupName{fit_, state_.steps()},
             saved = std::make_shared<const TrainingState>(capture()), &snapshot] {
      snapshot.use([&](SavedModel& model) {
        model.state = to_saved_state(*saved);
        directory.write(name, model, keep);
      });
    };
  }
  state_.write_later(std::move(write));
  state_.log().count_backup(monotonic_seconds() - begin);
}

}  // namespace lockstep
