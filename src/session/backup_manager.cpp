// See backup_manager.hpp. One file, because all its parts decide by one position in the job.
#include "session/backup_manager.hpp"

#include "core/clock.hpp"
#include "core/digest.hpp"
#include "core/log.hpp"
#include "metrics/metric_registry.hpp"
#include "options/shared_options.hpp"
#include "session/mirrors.hpp"
#include "session/nonfinite_error.hpp"
#include "session/write_making_room.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace lockstep {

namespace {

/// "after step 12 of epoch 3/10"; at an epoch's beginning "epoch 3/10".
std::string describe(const TrainingState& state, int epochs) {
  const std::string epoch = fmt::format("epoch {}/{}", state.epoch + 1, epochs);
  if (state.stop_training || state.epoch >= epochs) return "training was complete";
  return state.step == 0 ? epoch : fmt::format("after step {} of {}", state.step, epoch);
}

void require_same_setting(const std::string& path, const std::string& what, const std::string& saved,
                          const std::string& value) {
  if (saved == value) return;
  const auto [before, now] = excerpts_around_difference(saved, value);
  throw UsageError(path + " is a backup of another job: " + what + " was " + before + " in the backup and is " + now +
                   " now; restore the old setting, start over with --resume never, or begin another job with these "
                   "weights (--initial-weights, or --model of lockstep train, and another --model-dir)");
}

constexpr const char* origin_setting = "the digest of the initial weights";
constexpr const char* origin_files_setting = "the files of the initial weights";

}  // namespace

BackupManager::BackupManager(TrainingSession& session, CheckpointWriter& writer, const BackupAndRestore& settings,
                             std::vector<Callback*> callbacks, KeyValues job)
    : session_(session),
      writer_(writer),
      uncaught_exceptions_(std::uncaught_exceptions()),
      directory_(settings.directory(), session.run_context().write_guard()),
      options_(settings.options()),
      fit_(session.run_context().next_fit_number()),
      callbacks_(std::move(callbacks)),
      job_(std::move(job)) {
  const Options& run = session.run_context().options();
  // First, because another loss also changes how the data is described.
  KeyValues identity = session.model().compiled().identity();
  job_.insert(job_.begin(), std::make_move_iterator(identity.begin()), std::make_move_iterator(identity.end()));
  for (auto& option : options_to_resume_with(run)) job_.push_back(std::move(option));
  job_.emplace_back(origin_setting, session.model().origin());
  job_.emplace_back(origin_files_setting, session.model().origin_files());
}

BackupManager::~BackupManager() {
  session_.restart_once_if_nonfinite(0, {});
  if (std::uncaught_exceptions() > uncaught_exceptions_) session_.run_context().keep_backups();
}

JobContents BackupManager::contents(int epochs) const {
  JobContents contents;
  Digest settings;
  settings.add(&epochs, sizeof epochs);
  for (const auto& [what, value] : job_) {
    if (what == origin_setting) {
      if (!session_.model().origin_files().empty()) contents.origin = value;
    } else if (what != origin_files_setting) {
      for (const std::string& text : {what, value}) settings.add(text.c_str(), text.size() + 1);
    }
  }
  contents.settings = settings.to_string();
  return contents;
}

void BackupManager::restore(int epochs) {
  RunContext& run_context = session_.run_context();
  const Resume resume = run_context.options().resume;
  if (options_.save_freq == BackupOptions::never) {
    if (resume == Resume::automatic && run_context.world().is_chief() && !directory_.list().empty()) {
      log_warning(fmt::format(
          "the backups in {} are not used, because --backup-save-freq is never; training starts from the beginning",
          directory_.path().string()));
    }
    if (resume != Resume::require) return;
    throw UsageError("--resume require needs backups, but --backup-save-freq is never; change one of them");
  }
  DirectoryLock* held = nullptr;
  const auto find = [&]() -> std::optional<LoadedModel> {
    DirectoryLock& lock = run_context.lock_directory(directory_.path());
    held = &lock;
    const bool ignores_backups = resume == Resume::never && !lock.has_begun();
    const bool are_leftovers = lock.other_job_has_finished() && resume != Resume::require;
    if (are_leftovers && !directory_.list().empty())
      log_info(
          fmt::format("removing the backups in {}, which a job that has finished left", directory_.path().string()));
    const bool are_left = (ignores_backups || are_leftovers) && !directory_.clear();
    if (are_left && ignores_backups) {
      throw IoError(
          fmt::format("--resume never: cannot remove the backups in {}, from which a restart of this job would resume; "
                      "remove them, or choose another --backup-dir",
                      directory_.path().string()));
    }
    if (ignores_backups) {
      lock.record_begin();
      run_context.record_training({});
      return std::nullopt;
    }
    const auto check = [&](const LoadedBackup& backup) {
      const TrainingState state = deserialize_training_state(*backup.model.training_state, backup.path.string());
      check_same_job(backup.path.string(), state, epochs, lock.has_overwritten_origin());
      check_usable(backup.path.string(), backup.model, state);
    };
    auto newest = directory_.newest(fit_, check, log_warning);
    if (!newest && resume == Resume::require && fit_ == 1) {
      throw UsageError("--resume require: there is no backup in " + directory_.path().string() +
                       "; name the right --backup-dir, or use --resume auto");
    }
    lock.record_begin();  // a job that is refused leaves the directory to the one whose backups are there
    run_context.record_training(newest ? lock.training_before() : std::string());
    if (!newest) return std::nullopt;
    return LoadedModel{newest->path.string(), std::move(newest->model)};
  };
  run_context.writer().wait();
  const std::optional<LoadedModel> backup = read_on_chief(run_context, find);
  run_context.remove_on_success(directory_);
  watch_nonfinite(held);
  last_due_ = session_.iterations();
  if (!backup) return;
  const TrainingState saved = deserialize_training_state(*backup->model.training_state, backup->path);
  adopt(*backup, saved);
  const auto counters = run_context.launcher().progress().backups();
  counters->step = session_.iterations();
  if (struct stat status{}; stat(backup->path.c_str(), &status) == 0) {
    counters->time = static_cast<std::uint64_t>(status.st_mtim.tv_sec);
  }
  run_context.print("Resuming from " + backup->path + ": " + describe(saved, epochs));
}

void BackupManager::watch_nonfinite(DirectoryLock* lock) {
  RunContext& run_context = session_.run_context();
  std::uint64_t step_before = lock == nullptr ? 0 : lock->nonfinite_step();
  run_context.control().broadcast(std::as_writable_bytes(std::span(&step_before, 1)), 0);
  if (!run_context.launcher().is_active()) return;
  session_.restart_once_if_nonfinite(step_before, [this](std::uint64_t step) {
    RunContext& context = session_.run_context();
    if (context.world().is_chief()) context.lock_directory(directory_.path()).record_nonfinite(step);
  });
}

void BackupManager::save_guarded(const std::function<void()>& work) const {
  try {
    work();
  } catch (const NonfiniteError& error) {
    session_.fail_nonfinite(error);
  }
}

void BackupManager::check_usable(const std::string& path, const ModelData& backup, const TrainingState& saved) const {
  check_weights(path, backup.weights, session_.model().architecture());
  if (const auto problem = find_nonfinite(backup.compile_state->slots)) {
    throw DataError(fmt::format("{}: optimizer state {}; use an earlier backup", path, *problem));
  }
  const std::size_t expected_sums = session_.model().compiled().metrics->num_sums();
  if (saved.num_examples > 0 && saved.metric_sums.size() != expected_sums) {
    throw DataError(path + ": its metrics have " + std::to_string(saved.metric_sums.size()) +
                    " sums, but those of this model have " + std::to_string(expected_sums) + "; use an earlier backup");
  }
  if (saved.callbacks.size() != callbacks_.size()) {
    throw DataError(fmt::format("{} has the state of {} callbacks, but its job has {}; use an earlier backup", path,
                                saved.callbacks.size(), callbacks_.size()));
  }
}

void BackupManager::check_same_job(const std::string& path, const TrainingState& state, int epochs,
                                   bool has_overwritten_origin) const {
  const auto files = state.job_settings.find(origin_files_setting);
  // The job itself may have overwritten a file that it started from. What its program drew may differ in each start.
  const std::string& origin_files = session_.model().origin_files();
  const bool may_have_overwritten = state.job == session_.run_context().identity().job &&
                                    (has_overwritten_origin || origin_files.empty()) &&
                                    (files == state.job_settings.end() || files->second == origin_files);
  // A second fit begins with what the first one gives here, which has other bits on other workers or processors.
  const bool may_have_trained_differently = fit_ > 1 && state.provenance != session_.model().provenance();
  for (const auto& [what, value] : job_) {
    if (what == origin_files_setting) continue;
    if (what == origin_setting && (may_have_overwritten || may_have_trained_differently)) continue;
    const auto before = state.job_settings.find(what);
    if (before != state.job_settings.end()) require_same_setting(path, what, before->second, value);
  }
  if (state.epoch > epochs || (state.epoch == epochs && state.step > 0)) {
    throw UsageError(
        fmt::format("{} is a backup of a longer job: it was taken after step {} of epoch {}, but --epochs "
                    "is {} now; give more epochs, or start over with --resume never",
                    path, state.step, state.epoch + 1, epochs));
  }
}

void BackupManager::set_job_setting(const std::string& what, const std::string& value) {
  const auto found = std::ranges::find(job_, what, &KeyValues::value_type::first);
  if (found == job_.end()) {
    job_.emplace_back(what, value);
  } else {
    found->second = value;
  }
  if (const auto saved = restored_job_.extract(what)) require_same_setting(restored_path_, what, saved.mapped(), value);
}

void BackupManager::adopt(const LoadedModel& backup, const TrainingState& saved) {
  const int replicas = session_.run_context().options().batch_norm_replicas;
  if (replicas > 0 && session_.model().has_moving_averages()) {
    require_same_setting(backup.path, "--batch-norm-replicas", std::to_string(saved.batch_norm_replicas),
                         std::to_string(replicas));
  }
  restored_path_ = backup.path;
  restored_job_ = saved.job_settings;
  const auto workers = saved.provenance.find("number of workers");
  const auto sharding = saved.provenance.find("parallelism");
  const bool same_workers =
      workers != saved.provenance.end() && workers->second == std::to_string(session_.run_context().training_workers());
  session_.model().restore_parallelism(
      saved.batch_norm_replicas, same_workers && sharding != saved.provenance.end() ? sharding->second : std::string());
  session_.model().load(backup);
  if (learning_rate_of(session_.model().optimizer()).is_constant()) {
    set_learning_rate(session_.model().optimizer(), saved.learning_rate);
  }
  last_due_ = session_.iterations();
  session_.set_position({saved.epoch, saved.step});
  session_.set_stop_training(saved.stop_training);
  session_.log().restore({{saved.loss_sum, saved.num_examples, saved.metric_sums}, saved.seconds, saved.gradients},
                         saved.history);
  for (const auto& [name, value] : saved.tracked) session_.tracked()[name] = value;  // in place: users hold references
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    callbacks_[i]->restore_state(saved.callbacks[i]);
  }
  warn_if_provenance_differs(saved);
}

/// The entries of "a; b; c" that the other list does not have.
std::string entries_missing_in(const std::string& entries, const std::string& other) {
  std::string missing;
  for (std::size_t begin = 0; begin < entries.size();) {
    const std::size_t end = std::min(entries.find("; ", begin), entries.size());
    const std::string entry = entries.substr(begin, end - begin);
    if (("; " + other + "; ").find("; " + entry + "; ") == std::string::npos)
      missing += (missing.empty() ? "" : "; ") + entry;
    begin = end + 2;
  }
  return missing;
}

/// A resumed run gives the same bits only if its provenance is equal. Reports one difference, preferably the
/// parallelism, because the user can do something about it, then the kernels and the instruction set, because they
/// say what another device changes.
void BackupManager::warn_if_provenance_differs(const TrainingState& saved) const {
  if (!session_.run_context().world().is_chief()) return;
  const std::map<std::string, std::string> provenance = session_.model().provenance();
  const auto differs = [&](const auto& entry) {
    const auto before = saved.provenance.find(entry.first);
    return before != saved.provenance.end() && before->second != entry.second;
  };
  auto found = provenance.end();
  for (const char* first : {"parallelism", "kernels", "instruction set"}) {
    if (found == provenance.end()) found = provenance.find(first);
    if (found != provenance.end() && !differs(*found)) found = provenance.end();
  }
  if (found == provenance.end()) found = std::find_if(provenance.begin(), provenance.end(), differs);
  if (found == provenance.end()) return;
  const auto& [what, now] = *found;
  const std::string& before = saved.provenance.at(what);
  std::string difference = "was " + before + ", is " + now;
  std::string remedy;
  std::string consequence = "results will differ in their last digits from those of an uninterrupted run";
  if (what == "number of workers" && session_.run_context().options().ps_mode == ServerMode::asynchronous) {
    consequence = "a global batch makes another number of updates, which learning-rate schedules and Adam count";
  }
  if (what == "kernels") {
    difference = "were " + entries_missing_in(before, now) + "; are " + entries_missing_in(now, before);
  }
  if (what == "parallelism") {
    const auto workers = saved.provenance.find("number of workers");
    const std::string& workers_now = provenance.at("number of workers");
    difference =
        "was " +
        session_.model().describe_sharding(before, workers == saved.provenance.end() ? workers_now : workers->second) +
        "; is " + session_.model().describe_sharding(now, workers_now);
    remedy = "; to keep the old sharding, start as many workers as before with --parallelism auto";
  }
  log_warning("training resumes with " + std::string(what == "kernels" ? "other " : "a different ") + what + " (" +
              difference + "), so " + consequence + remedy);
}

TrainingState BackupManager::capture() const {
  TrainingState saved;
  const TrainingPosition position = session_.position();
  saved.epoch = position.epoch;
  saved.step = position.step;
  saved.stop_training = session_.stop_training();
  saved.learning_rate = learning_rate_of(session_.model().optimizer()).at(session_.iterations());
  const EpochProgress& epoch = session_.log().epoch_so_far();
  saved.loss_sum = epoch.metrics.loss_sum;
  saved.num_examples = epoch.metrics.num_examples;
  saved.metric_sums = epoch.metrics.sums;
  saved.seconds = epoch.seconds;
  saved.gradients = epoch.gradients;
  saved.history = session_.log().history();
  saved.tracked = session_.tracked();
  for (const Callback* callback : callbacks_) saved.callbacks.push_back(callback->save_state());
  saved.batch_norm_replicas = static_cast<int>(session_.model().batch_norm_replicas());
  saved.job = session_.run_context().identity().job;
  saved.job_settings = {job_.begin(), job_.end()};
  saved.provenance = session_.model().provenance();
  return saved;
}

bool BackupManager::is_due_after(std::uint64_t step) const noexcept {
  return options_.save_freq > 0 && step % static_cast<std::uint64_t>(options_.save_freq) == 0;
}

void BackupManager::after_step() {
  save_guarded([this] { session_.run_context().writer().rethrow_error(); });
  const bool is_due = is_due_after(session_.steps_made());
  if (session_.request() == StopRequest::after_this_step ||
      (is_due && session_.request() == StopRequest::after_next_backup)) {
    save_and_leave();
  }
  if (is_due) save();
}

void BackupManager::after_epoch() {
  if (options_.save_freq != BackupOptions::every_epoch) return;
  if (session_.request() != StopRequest::none) save_and_leave();
  save();
}

void BackupManager::save_and_leave() {
  RunContext& run_context = session_.run_context();
  if (options_.save_freq == BackupOptions::never) session_.leave_if_requested();
  run_context.writer().wait();
  save();
  const auto [epoch, step] = session_.position();
  const std::string where = step == 0 ? "before" : fmt::format("after step {} of", step);
  // Without a name the same command is another job, whose --resume never removes these backups.
  const bool is_lost = run_context.options().resume == Resume::never && !run_context.identity().outlives_launchers;
  run_context.leave(fmt::format("{} {} epoch {}; the same command{} goes on from there.", run_context.describe_stop(),
                                where, epoch + 1, is_lost ? " with --resume auto" : ""));
}

void BackupManager::finish() {
  save_guarded([this] { session_.run_context().writer().wait(); });
}

void BackupManager::save() {
  save_guarded([this] { save_unguarded(); });
}

void BackupManager::save_unguarded() {
  RunContext& run_context = session_.run_context();
  const std::uint64_t interval = session_.iterations() - std::exchange(last_due_, session_.iterations());
  const CompiledModel& model = session_.model().compiled();
  if (session_.model().is_tensor_parallel()) {
    compare_mirrors(model);
  } else if (!run_context.world().is_chief()) {
    if (has_mirrors(model)) static_cast<void>(gather_mirror_digests(model));
    return;
  }
  BackgroundWriter& background = run_context.writer();
  constexpr std::byte idle{0};
  constexpr std::byte gathering{1};
  constexpr std::byte writing{2};
  constexpr std::byte writing_model{3};
  std::array<std::byte, 1> chief{background.writes_model()   ? writing_model
                                 : background.is_gathering() ? gathering
                                 : background.busy()         ? writing
                                                             : idle};
  if (session_.model().is_tensor_parallel())
    run_context.control().broadcast(chief, 0);  // all ranks take part if the chief does
  if (chief[0] == writing_model) {              // of a ModelCheckpoint, say, which would go before every backup
    background.wait();
    chief[0] = idle;
  }
  const bool compares_copy = !session_.model().is_tensor_parallel() && has_mirrors(model);
  if (chief[0] != idle) {
    // A gather that has taken a whole interval ends now: a kill then costs at most two intervals.
    if (chief[0] == gathering) background.finish_gather();
    session_.log().add_skipped_backup();
    run_context.launcher().progress().add_skipped_backup();
    if (compares_copy) static_cast<void>(gather_mirror_digests(model));  // the other ranks do not know
    const bool was_asked_for = options_.save_freq > 0;                   // short epochs are nobody's wish
    if (was_asked_for && run_context.world().is_chief() && !std::exchange(warned_of_skipping_, true)) {
      log_warning(
          "a backup is skipped, because the previous one is still being written; --backup-save-freq asks for more than "
          "the disk, the network or the cores can do (history.json counts skipped backups)");
    }
    return;
  }
  const double begin = monotonic_seconds();
  // Half of the interval is for gathering, the rest for writing.
  Snapshot& snapshot = writer_.take_snapshot(std::max<std::uint64_t>(1, interval / 2));
  // The other hosts digest their mirrors while the chief copies its own; the copy's digest follows on the writer's
  // thread.
  std::vector<MirrorDigest> digests;
  if (compares_copy) digests = gather_mirror_digests(model);
  std::function<void()> write;
  if (run_context.world().is_chief()) {
    write = [directory = directory_, keep = options_.keep, name = BackupName{fit_, session_.iterations()},
             saved = std::make_shared<const TrainingState>(capture()), &snapshot, digests = std::move(digests),
             mirrors = model.communicator->mirror_of_rank(),
             counters = run_context.launcher().progress().backups()]() mutable {
      if (!digests.empty()) {
        digests.front().host += snapshot.mirror_digest();
        require_equal_mirrors(digests, mirrors, name.step);
      }
      snapshot.visit([&](ModelData& model) {
        model.training_state = serialize_training_state(*saved);
        try {
          write_making_room(directory.file_of(name), {&directory, 1}, [&] { directory.write(name, model, keep); });
        } catch (const IoError&) {
          ++counters->failed;
          throw;
        }
        counters->step = name.step;
        counters->time = static_cast<std::uint64_t>(wall_clock_seconds());
      });
    };
  }
  writer_.write_async(std::nullopt, std::move(write));
  session_.log().add_backup(monotonic_seconds() - begin);
}

}  // namespace lockstep
