// See evaluation_log.hpp.
#include "cli/evaluation_log.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/model_file.hpp"
#include "cli/evaluator_lock.hpp"
#include "cli/model_settings.hpp"
#include "core/clock.hpp"
#include "core/digest_of_file.hpp"
#include "core/file_system.hpp"
#include "core/log.hpp"
#include "core/printable.hpp"
#include "ownership/directory_record.hpp"
#include "session/run_context.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

double written(const ModelVersion& version) { return static_cast<double>(version.time_ms) / 1000; }

/// JSON is UTF-8, and a file's name may be any bytes.
std::string to_utf8(const fs::path& path) {
  using Json = nlohmann::json;
  const Json name = path.string();
  return Json::parse(name.dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

/// The best model while evaluation.json is written that names it. The number tells it from that of another evaluation.
std::string pending_name(double written_s, const fs::path& extension) {
  return fmt::format(".best-{:.3f}{}", written_s, extension.string());
}

/// Throws Json::exception unless an evaluator wrote it.
void require_entry(const nlohmann::ordered_json& entry) {
  (void)entry.at("file").get<std::string>();
  (void)entry.at("written").get<double>();
  (void)entry.value("digest", std::string());
}

bool is_best_name(const fs::path& file) { return file.stem() == "best" && is_model_file_name(file); }

}  // namespace

EvaluationLog::EvaluationLog(fs::path directory, std::string monitor, const fs::path& followed)
    : directory_(std::move(directory)), monitor_(std::move(monitor)) {
  require_not_owned_by_another(file());
  create_directories_durably(directory_);
  require_writable(file());
  followed_ = to_utf8(fs::proximate(fs::weakly_canonical(followed), fs::canonical(directory_)));
  lock_ = lock_for_evaluator(directory_, "writes to", "--eval-dir");
  if (std::ifstream stream(file(), std::ios::binary); stream) read(stream);
  require_own_models();
  check_best();
}

/// So that no worse model replaces the best one.
void EvaluationLog::read(std::istream& stream) {
  std::string problem;
  try {
    const Json earlier = Json::parse(stream);
    const auto monitored = earlier.at("monitor").get<std::string>();
    if (monitored == monitor_) {
      Content content{.job = earlier.value("job", ""),
                      .directory = earlier.value("directory", ""),
                      .test_set = earlier.value("test_set", ""),
                      .settings = earlier.value("settings", Settings()),
                      .evaluations = earlier.at("evaluations").get<std::vector<Json>>(),
                      .earlier = earlier.value("earlier_evaluations", std::vector<Json>()),
                      .best = earlier.at("best")};
      for (const Json& each : content.evaluations) require_entry(each);
      for (const Json& each : content.earlier) require_entry(each);
      if (!content.best.is_null()) {
        require_entry(content.best);
        (void)content.best.at(monitor_).get<double>();
      }
      content_ = std::move(content);
      return;
    }
    problem = fmt::format("is of an evaluator with --monitor {}", printable(monitored));
  } catch (const Json::exception&) {
    problem = "is damaged";
  }
  throw DataError(
      fmt::format("{} {}; move it and the best model away, or give another --eval-dir", file().string(), problem));
}

void EvaluationLog::write(Content content) {
  Json json = {{"monitor", monitor_},
               {"job", content.job},
               {"directory", content.directory},
               {"test_set", content.test_set},
               {"settings", content.settings},
               {"best", content.best},
               {"evaluations", content.evaluations}};
  if (!content.earlier.empty()) json["earlier_evaluations"] = content.earlier;
  const std::string text = json.dump(1) + "\n";
  write_file_atomically(file(), std::as_bytes(std::span(text)));
  content_ = std::move(content);
}

bool EvaluationLog::has_written(const fs::path& file) const {
  if (!fs::is_regular_file(file)) return false;
  const std::string digest = digest_of_file(file);
  const auto is_written = [&](const Json& entry) { return entry.value("digest", std::string()) == digest; };
  return std::ranges::any_of(content_.evaluations, is_written) || std::ranges::any_of(content_.earlier, is_written);
}

void EvaluationLog::require_own_models() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
    const fs::path& path = entry.path();
    if (!is_best_name(path) || path == best_file() || has_written(path)) continue;
    throw UsageError(
        fmt::format("{} is no model of this evaluator, which would replace it; move it away, or give another "
                    "--eval-dir",
                    path.string()));
  }
}

bool EvaluationLog::check_best() {
  finish_last();
  if (content_.best.is_null()) return true;
  const fs::path path = best_file();
  const std::optional<ModelVersion> found = newest_model(path);
  if (found && found == checked_) return true;
  if (found && !are_known_to_differ(digest_of_file(path), content_.best.value("digest", std::string()))) {
    checked_ = found;
    return true;
  }
  std::string problem = "is gone";
  if (found) {
    const fs::path aside = path.string() + ".damaged";
    fs::rename(path, aside);
    problem = "is damaged, or another file, and is now " + aside.string();
  }
  log_warning(fmt::format("{} {} ({}); the next model is the best one", path.string(), problem, describe_best()));
  Content content = content_;
  content.best = nullptr;
  write(std::move(content));
  return false;
}

/// An evaluator that was killed in add(), or failed there, may have written evaluation.json and not yet renamed its
/// best model, or have left a model that evaluation.json does not know.
void EvaluationLog::finish_last() const {
  const fs::path best = best_file();
  const std::string expected =
      content_.best.is_null() ? "" : pending_name(content_.best.at("written").get<double>(), best.extension());
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    const bool is_other_best = !content_.best.is_null() && is_best_name(name) && entry.path() != best;
    if ((name.starts_with(".best-") && name != expected) || (is_other_best && has_written(entry.path())))
      old.push_back(entry.path());
  }
  if (!expected.empty() && fs::exists(directory_ / expected)) {
    fs::rename(directory_ / expected, best);
    if (const int problem = sync_directory(directory_); problem != 0)
      throw_io_error("cannot write " + best.string(), problem);
  }
  std::error_code unknown;
  for (const fs::path& file : old) fs::remove(file, unknown);
}

fs::path EvaluationLog::best_file() const {
  if (content_.best.is_null()) return {};
  return directory_ / ("best" + fs::path(content_.best.at("file").get<std::string>()).extension().string());
}

std::optional<ModelVersion> EvaluationLog::best() const {
  std::optional<ModelVersion> best = content_.best.is_null() ? std::nullopt : newest_model(best_file());
  if (best) best->time_ms = static_cast<std::uint64_t>(std::llround(content_.best.at("written").get<double>() * 1000));
  return best;
}

bool EvaluationLog::is_of_another_job(const std::string& job) const {
  return are_known_to_differ(job, content_.job) || are_known_to_differ(followed_, content_.directory);
}

/// Whether the entry's file was evaluated while another job was followed in the same directory.
bool EvaluationLog::has_of_another_job(const Json& entry, const std::string& job) const {
  const auto is_file = [&](const Json& other) {
    return other.at("file") == entry.at("file") && other.at("written") == entry.at("written");
  };
  const auto is_file_of_another = [&](const Json& other) {
    return is_file(other) && other.value("directory", "") == followed_ &&
           are_known_to_differ(other.value("job", ""), job);
  };
  if (std::ranges::any_of(content_.earlier, is_file_of_another)) return true;
  return content_.directory == followed_ && are_known_to_differ(content_.job, job) &&
         std::ranges::any_of(content_.evaluations, is_file);
}

void EvaluationLog::require_comparable(const Evaluation& evaluation) const {
  const auto refuse = [&](const std::string& difference) {
    throw UsageError(
        fmt::format("{} is of {}, whose values do not compare; move it and the best model away, or give another "
                    "--eval-dir",
                    file().string(), difference));
  };
  // First, because a loss of dense targets also changes the test set's digest.
  for (const auto& [option, value] : evaluation.settings) {
    const auto before = content_.settings.find(option);
    if (before == content_.settings.end() || before->second == value) continue;
    const auto [old_part, new_part] = excerpts_around_difference(before->second, value);
    refuse(fmt::format("other values of {} ({} there, {} here)", option, printable(old_part), printable(new_part)));
  }
  if (are_known_to_differ(content_.test_set, evaluation.test_set)) {
    refuse(fmt::format("another test set ({}) than this one ({})", printable(content_.test_set), evaluation.test_set));
  }
}

std::string EvaluationLog::describe_other_job() const {
  const std::string other =
      are_known_to_differ(followed_, content_.directory)
          ? fmt::format("the job in {}", printable((directory_ / content_.directory).lexically_normal().string()))
          : fmt::format("another job ({})", printable(content_.job));
  return fmt::format("{} is of {}, so the evaluations begin anew, and the first model is the best one (before: {})",
                     file().string(), other, describe_best());
}

EvaluationLog::Content EvaluationLog::begun_anew() const {
  Content content{.earlier = content_.earlier};
  for (Json each : content_.evaluations) {
    each["job"] = content_.job;
    each["directory"] = content_.directory;
    content.earlier.push_back(std::move(each));
  }
  return content;
}

void EvaluationLog::add(const ModelVersion& version, const Evaluation& evaluation, const fs::path& copy,
                        const std::string& training) {
  const double now = wall_clock_seconds();
  const auto monitored = evaluation.logs.find(monitor_);
  if (monitored == evaluation.logs.end()) {
    throw UsageError(
        fmt::format("--monitor is '{}', but the model's evaluation has only {}", monitor_, describe(evaluation.logs)));
  }
  Json entry = {{"file", to_utf8(version.file.filename())}, {"written", written(version)}};
  if (has_of_another_job(entry, training)) return;
  const bool is_anew = is_of_another_job(training);
  if (!is_anew) require_comparable(evaluation);
  check_best();
  Content content = is_anew ? begun_anew() : content_;
  const std::string warning = is_anew ? describe_other_job() : "";
  const bool is_last = !content.evaluations.empty() && content.evaluations.back().at("file") == entry["file"] &&
                       content.evaluations.back().at("written") == entry["written"];
  if (is_last && !content.best.is_null()) return;
  entry["digest"] = digest_of_file(copy);
  if (evaluation.iterations) entry["iteration"] = *evaluation.iterations;
  for (const auto& [name, value] : evaluation.logs) entry[name] = std::isfinite(value) ? Json(value) : Json();
  const bool is_best = is_better(monitored->second, evaluation.upward.contains(monitor_), content.best);
  const fs::path pending = directory_ / pending_name(written(version), version.file.extension());
  if (is_best) fs::rename(copy, pending);
  if (is_last) content.evaluations.pop_back();
  content.evaluations.push_back(entry);
  if (is_best) content.best = entry;
  if (!training.empty()) content.job = training;
  content.directory = followed_;
  content.test_set = evaluation.test_set;
  content.settings = evaluation.settings;
  try {
    write(std::move(content));
  } catch (const Error&) {
    std::error_code unknown;
    fs::remove(pending, unknown);  // a full disk has no room for it
    throw;
  }
  if (is_anew) log_warning(warning);
  finish_last();
  if (is_last) return;  // the curves have it
  if (!events_) events_.emplace(directory_);
  const auto step = static_cast<std::int64_t>(evaluation.iterations.value_or(content_.evaluations.size()));
  for (const auto& [name, value] : evaluation.logs)
    events_->add_scalar("evaluation_" + name + "_vs_iterations", value, step, now);
  events_->flush();
}

Logs EvaluationLog::scores_of(const Json& entry) {
  Logs scores;
  for (const auto& [name, value] : entry.items()) {
    if (value.is_number() && name != "written" && name != "iteration") scores[name] = value.get<double>();
  }
  return scores;
}

std::string EvaluationLog::describe_best() const {
  return fmt::format("best {} {:.4f}, {}", monitor_,
                     content_.best.is_null() ? std::nan("") : content_.best.at(monitor_).get<double>(),
                     content_.best.is_null() ? "none" : content_.best.at("file").get<std::string>());
}

bool EvaluationLog::is_better(double value, bool is_upward, const Json& best) const {
  if (!std::isfinite(value)) return false;
  if (best.is_null()) return true;
  const auto best_value = best.at(monitor_).get<double>();
  return is_upward ? value > best_value : value < best_value;
}

}  // namespace lockstep
