// See evaluation_log.hpp.
#include "cli/evaluation_log.hpp"

#include "checkpoint/atomic_file.hpp"
#include "core/clock.hpp"
#include "core/file_system.hpp"
#include "core/printable.hpp"
#include "metrics/metric_registry.hpp"

#include <lockstep/core/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

namespace fs = std::filesystem;

namespace lockstep {

namespace {

double written(const ModelVersion& version) { return static_cast<double>(version.time_ms) / 1000; }

/// The best model while evaluation.json is written that names it. The number tells it from that of another evaluation.
std::string pending_name(double written_s, const fs::path& extension) {
  return fmt::format(".best-{:.3f}{}", written_s, extension.string());
}

}  // namespace

EvaluationLog::EvaluationLog(fs::path directory, std::string monitor)
    : directory_(std::move(directory)), monitor_(std::move(monitor)), is_upward_(is_upward_metric(monitor_) == true) {
  create_directories_durably(directory_);
  require_writable(file());
  lock();
  if (std::ifstream stream(file(), std::ios::binary); stream) read(stream);
  finish_last();
}

/// A file system without locks lets everybody in.
void EvaluationLog::lock() {
  const fs::path path = directory_ / ".evaluator.lock";
  lock_ = FileDescriptor(path, O_RDWR | O_CREAT | O_NOFOLLOW);
  if (!lock_.valid()) throw_io_error("cannot create " + path.string(), errno);
  constexpr double patience_s = 10;  // the evaluator that this one replaces may be ending
  const double begin = monotonic_seconds();
  while (try_lock(lock_) == EWOULDBLOCK) {
    if (monotonic_seconds() > begin + patience_s) {
      throw PeerError("another evaluator writes to " + directory_.string() +
                      "; wait for it to end, or give another --eval-dir");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// So that no worse model replaces the best one.
void EvaluationLog::read(std::istream& stream) {
  std::string problem;
  try {
    const Json earlier = Json::parse(stream);
    const auto monitored = earlier.at("monitor").get<std::string>();
    if (monitored == monitor_) {
      evaluations_ = earlier.at("evaluations").get<std::vector<Json>>();
      if (!evaluations_.empty()) {
        last_file_ = evaluations_.back().at("file").get<std::string>();
        last_written_ = evaluations_.back().at("written").get<double>();
      }
      best_ = earlier.at("best");
      if (best_.is_null()) return;
      best_value_ = best_.at(monitor_).get<double>();
      best_file_ = directory_ / ("best" + fs::path(best_.at("file").get<std::string>()).extension().string());
      return;
    }
    problem = fmt::format("is of an evaluator with --monitor {}", printable(monitored));
  } catch (const Json::exception&) {
    problem = "is damaged";
  }
  throw DataError(fmt::format("{} {}; remove it, or give another --eval-dir", file().string(), problem));
}

/// An evaluator that was killed in add() may have written evaluation.json and not yet renamed its best model, or have
/// left a model that evaluation.json does not know.
void EvaluationLog::finish_last() const {
  const bool is_last_best = !evaluations_.empty() && !best_.is_null() && evaluations_.back() == best_;
  const std::string expected = is_last_best ? pending_name(last_written_, best_file_.extension()) : "";
  std::error_code unknown;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, unknown)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".best-")) continue;
    if (name == expected) {
      fs::rename(entry.path(), best_file_);
    } else {
      fs::remove(entry.path(), unknown);
    }
  }
}

bool EvaluationLog::ends_with(const ModelVersion& version) const {
  return last_file_ == version.file.filename() && last_written_ == written(version);
}

std::optional<fs::path> EvaluationLog::add(const ModelVersion& version, const Evaluation& evaluation,
                                           const fs::path& copy) {
  const double now = wall_clock_seconds();
  const auto monitored = evaluation.logs.find(monitor_);
  if (monitored == evaluation.logs.end()) {
    fs::remove(copy);
    throw UsageError(
        fmt::format("--monitor is '{}', but the model's evaluation has only {}", monitor_, describe(evaluation.logs)));
  }
  Json entry = {{"file", version.file.filename().string()}, {"written", written(version)}};
  if (evaluation.iterations) entry["iteration"] = *evaluation.iterations;
  for (const auto& [name, value] : evaluation.logs) entry[name] = std::isfinite(value) ? Json(value) : Json();
  const bool is_best = is_better(monitored->second);
  const fs::path extension = version.file.extension();
  const fs::path pending = directory_ / pending_name(written(version), extension);
  if (is_best) {
    best_value_ = monitored->second;
    best_ = entry;
    fs::rename(copy, pending);
  } else {
    fs::remove(copy);
  }
  evaluations_.push_back(std::move(entry));
  const std::string text = Json{{"monitor", monitor_}, {"best", best_}, {"evaluations", evaluations_}}.dump(1) + "\n";
  write_file_atomically(file(), std::as_bytes(std::span(text)));
  if (is_best) {
    const fs::path best = directory_ / ("best" + extension.string());
    fs::rename(pending, best);
    if (!best_file_.empty() && best_file_ != best) fs::remove(best_file_);  // of another format
    best_file_ = best;
  }
  if (!events_) events_.emplace(directory_);
  const auto step = static_cast<std::int64_t>(evaluation.iterations.value_or(evaluations_.size()));
  for (const auto& [name, value] : evaluation.logs)
    events_->add_scalar("evaluation_" + name + "_vs_iterations", value, step, now);
  events_->flush();
  return is_best ? std::optional(best_file_) : std::nullopt;
}

std::string EvaluationLog::describe_best() const {
  return fmt::format("best {} {:.4f}, {}", monitor_, best_value_.value_or(std::nan("")),
                     best_.is_null() ? "none" : best_.at("file").get<std::string>());
}

bool EvaluationLog::is_better(double value) const {
  if (!std::isfinite(value)) return false;
  return !best_value_ || (is_upward_ ? value > *best_value_ : value < *best_value_);
}

}  // namespace lockstep
