// See follow.hpp.
#include "cli/follow.hpp"

#include "checkpoint/newest_model.hpp"
#include "cli/check_output.hpp"
#include "cli/copy_durably.hpp"
#include "core/clock.hpp"
#include "core/file_system.hpp"
#include "core/log.hpp"
#include "core/printable.hpp"
#include "options/read_value.hpp"
#include "ownership/directory_record.hpp"
#include "ownership/job_watch.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

constexpr std::chrono::milliseconds look_interval{500};
constexpr std::chrono::seconds retry_interval{2};

/// The copy of a model while it is evaluated, because the job may replace the file meanwhile.
class Candidate {
 public:
  explicit Candidate(fs::path file) : file_(std::move(file)) {}
  ~Candidate() {
    std::error_code unknown;  // it is gone if it became the best model
    fs::remove(file_, unknown);
  }
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;
  [[nodiscard]] const fs::path& file() const noexcept { return file_; }

 private:
  fs::path file_;
};

class Follower {
 public:
  Follower(FollowSettings settings, const std::function<Evaluation(const fs::path& file)>& evaluate,
           const std::function<void()>& report_busy)
      : settings_(std::move(settings)),
        evaluate_(evaluate),
        report_busy_(report_busy),
        log_(settings_.eval_dir, settings_.monitor, settings_.directory),
        exports_(settings_.exports, settings_.directory),
        job_(settings_.directory),
        last_news_(monotonic_seconds()),
        last_evaluation_(last_news_ - settings_.throttle) {}

  void run();

 private:
  enum class Next { look_again, wait, end };

  [[nodiscard]] Next look();
  [[nodiscard]] std::optional<ModelVersion> newest_file(JobState job) const;
  void evaluate(const ModelVersion& version);
  [[nodiscard]] Next end(const std::optional<ModelVersion>& last);
  [[nodiscard]] Next after_silence(JobState job, const std::optional<ModelVersion>& last);
  void require_patience(const std::exception& error);

  FollowSettings settings_;
  const std::function<Evaluation(const fs::path& file)>& evaluate_;
  const std::function<void()>& report_busy_;
  EvaluationLog log_;
  Exports exports_;
  JobWatch job_;
  std::optional<ModelVersion> seen_;  ///< evaluated, or left out
  std::string damage_;                ///< why it was left out; empty: it was evaluated
  bool has_told_of_end_ = false;
  double last_news_;
  double last_evaluation_;
  std::string problem_;        ///< that was told of and may pass
  double problem_since_ = -1;  ///< below 0: there is none
};

/// The model that the job wrote last if the job has ended, else the newer of its newest model and its newest backup.
std::optional<ModelVersion> Follower::newest_file(JobState job) const {
  if ((job == JobState::ended || job == JobState::finished_before) && !job_.model().empty()) {
    const fs::path file = settings_.directory / job_.model();
    std::optional<ModelVersion> last = newest_model(file);
    if (!last) throw IoError(fmt::format("the job has finished, but its model {} is not there", file.string()));
    return last;
  }
  const std::optional<ModelVersion> model = newest_model(settings_.directory);
  const std::optional<ModelVersion> backup = newest_backup(settings_.backups);
  if (!model || !backup) return model ? model : backup;
  return backup->time_ms > model->time_ms ? backup : model;
}

void Follower::evaluate(const ModelVersion& version) {
  const Candidate copy(settings_.eval_dir / (".candidate" + version.file.extension().string()));
  const auto is_there = [&] { return newest_model(version.file) == version; };  // else the job has replaced it
  try {
    copy_durably(version.file, copy.file());
  } catch (const IoError&) {
    if (is_there()) throw;
  }
  if (!is_there()) return;
  Evaluation found;
  try {
    found = evaluate_(copy.file());
  } catch (const TestSetError&) {
    throw;
  } catch (const DataError& error) {
    damage_ = error.what();
    seen_ = version;
    log_warning(fmt::format("{} is left out: {}", version.file.string(), damage_));
    return;
  }
  const std::string step = found.iterations ? fmt::format(", step {}", *found.iterations) : "";
  std::cout << printable(fmt::format("{}{}: {}", version.file.filename().string(), step, describe(found.logs)))
            << std::endl;
  ModelVersion content = version;
  content.file = copy.file();
  exports_.set_input_scale(found.input_scale);
  exports_.add(Exporter::latest, content, found.logs);
  log_.add(version, found, copy.file(), job_.training());
  if (const std::optional<ModelVersion> best = log_.best()) exports_.add(Exporter::best, *best, log_.best_scores());
  damage_.clear();
  seen_ = version;
}

/// Exits with 0 only if the job's last model was evaluated.
Follower::Next Follower::end(const std::optional<ModelVersion>& last) {
  if (!log_.check_best()) {
    seen_.reset();  // the last model may be the best one
    return Next::look_again;
  }
  if (last && damage_.empty()) exports_.add(Exporter::final, *last, log_.last_scores());
  return Next::end;
}

Follower::Next Follower::after_silence(JobState job, const std::optional<ModelVersion>& last) {
  last_news_ = monotonic_seconds();
  const std::string found = log_.size() > 0 ? "; " + log_.describe_best() : "";
  const std::string directory = settings_.directory.string();
  if (job == JobState::finished_before) return end(last);
  if (job == JobState::unknown) {
    throw PeerError(
        fmt::format("{} holds no record of a job, so nothing tells whether one runs or has ended; start the "
                    "job, or the evaluator again if it still runs (a job in Python keeps no record there){}",
                    directory, found));
  }
  if (!job_.may_be_running())
    throw PeerError(fmt::format("no process trains in {}, and its job has not ended{}", directory, found));
  log_info(fmt::format("still waiting for news in {}, where a job is running", directory));
  return Next::wait;
}

Follower::Next Follower::look() {
  const JobState job = job_.look();  // before the look for files: an ended job writes no more
  const std::optional<ModelVersion> newest = newest_file(job);
  const double now = monotonic_seconds();
  if (newest && newest != seen_) {
    if (now < last_evaluation_ + settings_.throttle && job != JobState::ended) return Next::wait;
    evaluate(*newest);
    last_evaluation_ = now;
    last_news_ = monotonic_seconds();
    return Next::look_again;
  }
  if (job == JobState::ended) return end(newest);
  if (job == JobState::finished_before && !has_told_of_end_) {
    has_told_of_end_ = true;
    log_info(fmt::format("the job in {} had ended before; waiting {:g} s for another (--follow-timeout)",
                         settings_.directory.string(), settings_.timeout));
  }
  return now > last_news_ + settings_.timeout ? after_silence(job, newest) : Next::wait;
}

/// For a handler of errors that may pass. Tells of each once. Throws the error if no look has succeeded in time.
void Follower::require_patience(const std::exception& error) {
  const double now = monotonic_seconds();
  if (problem_since_ < 0) problem_since_ = now;
  if (now > problem_since_ + settings_.timeout) throw;
  if (problem_ != error.what())
    log_warning(fmt::format("{}; trying again for {:g} s", error.what(), settings_.timeout));
  problem_ = error.what();
  std::this_thread::sleep_for(retry_interval);
}

void Follower::run() {
  log_info(fmt::format("waiting for models of {}", settings_.directory.string()));
  for (Next next = Next::look_again; next != Next::end;) {
    if (next == Next::wait) std::this_thread::sleep_for(look_interval);
    report_busy_();
    // A file, a disk or a test set that is being replaced may be there again.
    try {
      next = look();
      problem_since_ = -1;
      problem_.clear();
    } catch (const IoError& error) {
      require_patience(error);
    } catch (const TestSetError& error) {
      if (!error.may_pass()) throw;
      require_patience(error);
    } catch (const DataError& error) {
      require_patience(error);
    } catch (const fs::filesystem_error& error) {
      require_patience(error);
    }
  }
  if (!damage_.empty()) throw DataError(fmt::format("the job's last model was not evaluated: {}", damage_));
  if (!seen_) throw DataError(fmt::format("the job in {} has ended without a model", settings_.directory.string()));
  std::cout << printable(fmt::format("The job has ended. {} evaluations; {}", log_.size(), log_.describe_best()))
            << std::endl;
}

}  // namespace

std::vector<ProgramOption> follow_options(FollowSettings& settings) {
  const auto seconds = [](double& variable) {
    return [&variable](const OptionValue& given) {
      variable = read_number(
          given, [](double number) { return number >= 0 && number <= 30 * 86400.0; }, "seconds, from 0 to 30 days");
    };
  };
  return {
      {.name = "follow",
       .metavar = "MODEL_DIR",
       .help = "instead of --model: evaluate each new model and\nbackup of the job that trains there, until it ends",
       .set = [&settings](const OptionValue& given) { settings.directory = given.value; }},
      {.name = "follow-backups",
       .metavar = "PATH",
       .help = "the job's --backup-dir",
       .shown_default = "MODEL_DIR/backup",
       .set = [&settings](const OptionValue& given) { settings.backups = given.value; }},
      {.name = "eval-dir",
       .metavar = "PATH",
       .help = "for evaluation.json, TensorBoard's curves and the\nbest model",
       .shown_default = "MODEL_DIR/eval",
       .set = [&settings](const OptionValue& given) { settings.eval_dir = given.value; }},
      {.name = "monitor",
       .metavar = "NAME",
       .help = "loss or metric of which the best model is kept",
       .shown_default = "loss",
       .set = [&settings](const OptionValue& given) { settings.monitor = given.value; }},
      {.name = "eval-throttle",
       .metavar = "S",
       .help = "seconds between the begins of two evaluations",
       .shown_default = "0",
       .set = seconds(settings.throttle)},
      {.name = "export",
       .metavar = "NAMES",
       .help = "keep models as EXPORT_DIR/NAME/VERSION/: latest, best,\nfinal, or several with commas between",
       .set =
           [&settings](const OptionValue& given) {
             settings.exports.exporters.clear();
             std::istringstream names(given.value);
             for (std::string name; std::getline(names, name, ',');) {
               const std::optional<Exporter> exporter = enum_of<Exporter>(name);
               if (!exporter) refuse(given, "latest, best, final, or several with commas between them");
               settings.exports.exporters.push_back(*exporter);
             }
             if (settings.exports.exporters.empty())
               refuse(given, "latest, best, final, or several with commas between them");
           }},
      {.name = "export-dir",
       .metavar = "PATH",
       .help = "for exported models",
       .shown_default = "MODEL_DIR/export",
       .set = [&settings](const OptionValue& given) { settings.exports.directory = given.value; }},
      {.name = "exports-to-keep",
       .metavar = "N",
       .help = "versions of each exporter",
       .shown_default = "5",
       .set = [&settings](
                  const OptionValue& given) { settings.exports.kept = read_whole<std::size_t>(given, 1, 10'000); }},
      {.name = "follow-timeout",
       .metavar = "S",
       .help = "seconds without news after which a job that no\nprocess runs is given up; also for errors to pass",
       .shown_default = "600",
       .set = seconds(settings.timeout)},
  };
}

void require_consistent(const FollowSettings& follow, const ModelSettings& settings) {
  if (!follow.directory.empty() && !settings.model.empty())
    throw UsageError("--model and --follow are both given; leave one of them out");
  const FollowSettings defaults;
  const bool has_more = follow.backups != defaults.backups || follow.eval_dir != defaults.eval_dir ||
                        follow.monitor != defaults.monitor || follow.throttle != defaults.throttle ||
                        follow.timeout != defaults.timeout || follow.exports != defaults.exports;
  if (follow.directory.empty() && has_more)
    throw UsageError(
        "--follow-backups, --eval-dir, --monitor, --eval-throttle, --export, --export-dir, --exports-to-keep and "
        "--follow-timeout need --follow MODEL_DIR");
  std::error_code unknown;
  if (fs::exists(follow.directory, unknown) && !fs::is_directory(follow.directory, unknown)) {
    throw UsageError(
        fmt::format("--follow takes a directory, but {} is a file; name the directory where the job writes "
                    "its models",
                    follow.directory.string()));
  }
  if (follow.exports.exporters.empty() && follow.exports != defaults.exports)
    throw UsageError("--export-dir and --exports-to-keep need --export with latest, best, final, or several of them");
}

namespace {

/// A job's model directory is no evaluator's, also when the job has finished.
void require_no_job(const fs::path& eval_dir, const fs::path& default_place) {
  std::error_code unknown;
  if (fs::equivalent(eval_dir, default_place, unknown)) return;
  const std::optional<DirectoryRecord> record = find_record(eval_dir);
  if (!record) return;
  throw UsageError(fmt::format("--eval-dir is {}, where {} writes its models; choose another directory",
                               eval_dir.string(), describe(record)));
}

}  // namespace

void follow_job(FollowSettings settings, const std::function<Evaluation(const fs::path& file)>& evaluate,
                const std::function<void()>& report_busy) {
  if (settings.backups.empty()) settings.backups = settings.directory / "backup";
  if (settings.eval_dir.empty()) settings.eval_dir = settings.directory / "eval";
  if (settings.exports.directory.empty()) settings.exports.directory = settings.directory / "export";
  // There, the best model would be taken for the job's newest one.
  require_distinct({}, {{"--follow", settings.directory}, {"--follow-backups", settings.backups}},
                   std::array{NamedFile{"--eval-dir", settings.eval_dir, true}});
  if (!settings.exports.exporters.empty()) {
    require_distinct({}, {},
                     std::array{NamedFile{"--eval-dir", settings.eval_dir, true},
                                NamedFile{"--export-dir", settings.exports.directory, true}});
  }
  require_no_job(settings.eval_dir, settings.directory / "eval");
  if (std::error_code unknown; !fs::exists(settings.directory, unknown)) {
    log_warning(fmt::format("--follow is {}, which does not exist yet", settings.directory.string()));
  }
  try {
    Follower(std::move(settings), evaluate, report_busy).run();
  } catch (const fs::filesystem_error& error) {
    throw IoError(error.what());
  } catch (...) {  // else an error that ends the process unwinds no stack, and the candidate stays
    throw;
  }
}

}  // namespace lockstep
