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
std::string name_of(const ModelVersion& version) {
  using Json = nlohmann::json;
  const Json name = version.file.filename().string();
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

EvaluationLog::EvaluationLog(fs::path directory, std::string monitor)
    : directory_(std::move(directory)), monitor_(std::move(monitor)) {
  require_not_owned_by_another(file());
  create_directories_durably(directory_);
  require_writable(file());
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
      test_set_ = earlier.value("test_set", "");
      evaluations_ = earlier.at("evaluations").get<std::vector<Json>>();
      best_ = earlier.at("best");
      for (const Json& each : evaluations_) require_entry(each);
      if (best_.is_null()) return;
      require_entry(best_);
      (void)best_.at(monitor_).get<double>();
      return;
    }
    problem = fmt::format("is of an evaluator with --monitor {}", printable(monitored));
  } catch (const Json::exception&) {
    problem = "is damaged";
  }
  throw DataError(
      fmt::format("{} {}; move it and the best model away, or give another --eval-dir", file().string(), problem));
}

void EvaluationLog::write(std::vector<Json> evaluations, Json best, const std::string& test_set) {
  const Json content = {{"monitor", monitor_}, {"test_set", test_set}, {"best", best}, {"evaluations", evaluations}};
  const std::string text = content.dump(1) + "\n";
  write_file_atomically(file(), std::as_bytes(std::span(text)));
  test_set_ = test_set;
  evaluations_ = std::move(evaluations);
  best_ = std::move(best);
}

bool EvaluationLog::has_written(const fs::path& file) const {
  if (!fs::is_regular_file(file)) return false;
  const std::string digest = digest_of_file(file);
  return std::ranges::any_of(evaluations_,
                             [&](const Json& entry) { return entry.value("digest", std::string()) == digest; });
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
  if (best_.is_null()) return true;
  const fs::path path = best_file();
  const std::optional<ModelVersion> found = newest_model(path);
  if (found && found == checked_) return true;
  if (found && !are_known_to_differ(digest_of_file(path), best_.value("digest", std::string()))) {
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
  write(evaluations_, nullptr, test_set_);
  return false;
}

/// An evaluator that was killed in add(), or failed there, may have written evaluation.json and not yet renamed its
/// best model, or have left a model that evaluation.json does not know.
void EvaluationLog::finish_last() const {
  const fs::path best = best_file();
  const std::string expected = best_.is_null() ? "" : pending_name(best_.at("written").get<double>(), best.extension());
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    const bool is_other_best = !best_.is_null() && is_best_name(name) && entry.path() != best;
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
  if (best_.is_null()) return {};
  return directory_ / ("best" + fs::path(best_.at("file").get<std::string>()).extension().string());
}

std::optional<ModelVersion> EvaluationLog::best() const {
  std::optional<ModelVersion> best = best_.is_null() ? std::nullopt : newest_model(best_file());
  if (best) best->time_ms = static_cast<std::uint64_t>(std::llround(best_.at("written").get<double>() * 1000));
  return best;
}

void EvaluationLog::add(const ModelVersion& version, const Evaluation& evaluation, const fs::path& copy) {
  const double now = wall_clock_seconds();
  const auto monitored = evaluation.logs.find(monitor_);
  if (monitored == evaluation.logs.end()) {
    throw UsageError(
        fmt::format("--monitor is '{}', but the model's evaluation has only {}", monitor_, describe(evaluation.logs)));
  }
  if (!test_set_.empty() && evaluation.test_set != test_set_) {
    throw UsageError(
        fmt::format("{} is of another test set ({}) than this one ({}), whose values do not compare; move "
                    "it and the best model away, or give another --eval-dir",
                    file().string(), printable(test_set_), evaluation.test_set));
  }
  check_best();
  Json entry = {{"file", name_of(version)}, {"written", written(version)}};
  const bool is_last = !evaluations_.empty() && evaluations_.back().at("file") == entry["file"] &&
                       evaluations_.back().at("written") == entry["written"];
  if (is_last && !best_.is_null()) return;
  entry["digest"] = digest_of_file(copy);
  if (evaluation.iterations) entry["iteration"] = *evaluation.iterations;
  for (const auto& [name, value] : evaluation.logs) entry[name] = std::isfinite(value) ? Json(value) : Json();
  const bool is_best = is_better(monitored->second, evaluation.upward.contains(monitor_));
  const fs::path pending = directory_ / pending_name(written(version), version.file.extension());
  if (is_best) fs::rename(copy, pending);
  std::vector<Json> evaluations = evaluations_;
  if (is_last) evaluations.pop_back();
  evaluations.push_back(entry);
  try {
    write(std::move(evaluations), is_best ? entry : best_, evaluation.test_set);
  } catch (const Error&) {
    std::error_code unknown;
    fs::remove(pending, unknown);  // a full disk has no room for it
    throw;
  }
  finish_last();
  if (is_last) return;  // the curves have it
  if (!events_) events_.emplace(directory_);
  const auto step = static_cast<std::int64_t>(evaluation.iterations.value_or(evaluations_.size()));
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
  return fmt::format("best {} {:.4f}, {}", monitor_, best_.is_null() ? std::nan("") : best_.at(monitor_).get<double>(),
                     best_.is_null() ? "none" : best_.at("file").get<std::string>());
}

bool EvaluationLog::is_better(double value, bool is_upward) const {
  if (!std::isfinite(value)) return false;
  if (best_.is_null()) return true;
  const auto best = best_.at(monitor_).get<double>();
  return is_upward ? value > best : value < best;
}

}  // namespace lockstep
