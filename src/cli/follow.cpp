// See follow.hpp.
#include "cli/follow.hpp"

#include "checkpoint/newest_model.hpp"
#include "core/clock.hpp"
#include "core/file_system.hpp"
#include "core/log.hpp"
#include "core/printable.hpp"
#include "options/read_value.hpp"
#include "ownership/directory_record.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

constexpr std::chrono::milliseconds look_interval{500};
constexpr double grace_s = 10;  // for a job that is just being started, or that restarts with another launcher

enum class JobState { unknown, running, ended };

/// As the job's record in its model directory tells.
JobState state_of_job(const fs::path& directory) {
  const fs::path path = record_file_in(directory);
  const FileDescriptor file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file.valid()) return JobState::unknown;
  const std::optional<DirectoryRecord> record = read_record(file, path);
  if (!record) return JobState::unknown;
  return record->owner.has_finished ? JobState::ended : JobState::running;
}

/// Whether a process holds the directory's lock. Rarely asked, because asking takes the lock for a moment.
bool is_held(const fs::path& directory) {
  const FileDescriptor file = open_for_lock(record_file_in(directory));
  return file.valid() && try_lock(file) == EWOULDBLOCK;
}

/// The newer of the job's newest model and its newest backup.
std::optional<ModelVersion> newest_file(const FollowSettings& settings, const fs::path& backups) {
  const std::optional<ModelVersion> model = newest_model(settings.directory);
  const std::optional<ModelVersion> backup = newest_backup(backups);
  if (!model || !backup) return model ? model : backup;
  return backup->time_ms > model->time_ms ? backup : model;
}

void leave_out(const ModelVersion& version, const fs::path& copy, const std::string& problem) {
  std::error_code unknown;
  fs::remove(copy, unknown);
  log_warning(fmt::format("{} is left out: {}", version.file.string(), problem));
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
       .help = "seconds without news after which a job that no\nprocess runs is given up",
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
}

void follow_job(const FollowSettings& settings, const std::function<Evaluation(const fs::path& file)>& evaluate) {
  const fs::path backups = settings.backups.empty() ? settings.directory / "backup" : settings.backups;
  const fs::path eval_dir = settings.eval_dir.empty() ? settings.directory / "eval" : settings.eval_dir;
  EvaluationLog log(eval_dir, settings.monitor);
  ExportSettings exports = settings.exports;
  if (exports.directory.empty()) exports.directory = settings.directory / "export";
  std::optional<ModelVersion> seen;
  std::optional<ModelVersion> evaluated;
  const double begin = monotonic_seconds();
  double last_news = begin;
  double last_evaluation = begin - settings.throttle;
  bool has_run = false;
  log_info(fmt::format("waiting for models of {}", settings.directory.string()));
  while (true) {
    const JobState job = state_of_job(settings.directory);  // before the look for files: an ended job writes no more
    has_run = has_run || job == JobState::running;
    const std::optional<ModelVersion> newest = newest_file(settings, backups);
    const double now = monotonic_seconds();
    if (newest && log.ends_with(*newest)) seen = newest;
    if (newest && newest != seen && (now >= last_evaluation + settings.throttle || job != JobState::running)) {
      last_evaluation = last_news = now;
      seen = newest;
      const fs::path copy = eval_dir / (".candidate" + newest->file.extension().string());
      try {
        fs::copy_file(newest->file, copy, fs::copy_options::overwrite_existing);  // the job may replace it meanwhile
        const Evaluation found = evaluate(copy);
        const std::string step = found.iterations ? fmt::format(", step {}", *found.iterations) : "";
        std::cout << printable(fmt::format("{}{}: {}", newest->file.filename().string(), step, describe(found.logs)))
                  << std::endl;
        evaluated = newest;
        export_model(exports, Exporter::latest, *newest, copy);
        if (const std::optional<fs::path> best = log.add(*newest, found, copy))
          export_model(exports, Exporter::best, *newest, *best);
      } catch (const fs::filesystem_error& error) {  // a backup that was replaced before it was copied
        leave_out(*newest, copy, error.what());
      } catch (const DataError& error) {
        leave_out(*newest, copy, error.what());
      }
      continue;
    }
    const bool is_settled = now > begin + grace_s || has_run || job == JobState::ended;
    if (log.size() > 0 && job != JobState::running && is_settled) {
      if (newest && (newest == evaluated || log.ends_with(*newest)))
        export_model(exports, Exporter::final, *newest, newest->file);
      break;
    }
    if (now > last_news + settings.timeout) {
      last_news = now;
      if (!is_held(settings.directory))
        throw PeerError(fmt::format("no process trains in {}, and its job has not ended{}", settings.directory.string(),
                                    log.size() > 0 ? "; " + log.describe_best() : ""));
      log_info(fmt::format("still waiting for news in {}, where a job is running", settings.directory.string()));
    }
    std::this_thread::sleep_for(look_interval);
  }
  std::cout << printable(fmt::format("The job has ended. {} evaluations; {}", log.size(), log.describe_best()))
            << std::endl;
}

}  // namespace lockstep
