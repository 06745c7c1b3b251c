// See checkpoint_writer.hpp.
#include "session/checkpoint_writer.hpp"

#include "checkpoint/atomic_file.hpp"
#include "checkpoint/backup/backup_directory.hpp"
#include "checkpoint/model_file.hpp"
#include "core/clock.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"
#include "report/report_html.hpp"
#include "session/save_history.hpp"
#include "session/write_making_room.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

/// What history.json records about the choice of parallelism.
NamedValues record_of(const ParallelismChoice& choice) {
  NamedValues record{{"parallelism", parallelism_name(choice.sharding)}, {"parallelism_reason", choice.reason}};
  for (const auto& [name, seconds] : choice.predicted) record["predicted_ms_" + name] = 1000 * seconds;
  for (const auto& [bytes, seconds] : choice.link.points()) {
    record[fmt::format("all_reduce_ms_{}_bytes", static_cast<std::int64_t>(bytes))] = 1000 * seconds;
  }
  return record;
}

/// Whether a file lies in the directory itself. The record of a run belongs to --model-dir and is written nowhere else.
bool is_in(const std::filesystem::path& file, const std::filesystem::path& directory) {
  std::error_code ignored;
  return !directory.empty() &&
         std::filesystem::equivalent(std::filesystem::absolute(file).parent_path(), directory, ignored);
}

/// Whether a file is one of those that the lines of `files` name.
bool is_one_of(const std::filesystem::path& file, const std::string& files) {
  std::istringstream lines(files);
  for (std::string line; std::getline(lines, line);) {
    std::error_code ignored;
    if (file == line || std::filesystem::equivalent(file, line, ignored)) return true;
  }
  return false;
}

/// Throws UsageError for a name whose file would be removed with the backups.
void require_no_backup_name(const std::filesystem::path& path) {
  if (!is_backup_name(path)) return;
  throw UsageError(
      fmt::format("{} is the name of a backup, which is removed in the end; choose another", path.string()));
}

}  // namespace

CheckpointWriter::~CheckpointWriter() {
  BackgroundWriter& writer = session_.run_context().writer();
  if (std::uncaught_exceptions() > 0) writer.cancel_gather();
  writer.join();  // the job reads the snapshot
}

bool CheckpointWriter::participates() const {
  return session_.run_context().world().is_chief() || session_.model().is_tensor_parallel();
}

Snapshot& CheckpointWriter::take_snapshot(std::size_t max_gather_steps) {
  CompiledModel& model = session_.model().compiled();
  prepare_snapshot();
  snapshot_->capture(model.arenas, *model.communicator, model.options, model.iteration, max_gather_steps);
  return *snapshot_;
}

Snapshot& CheckpointWriter::take_snapshot_to_write_now() {
  CompiledModel& model = session_.model().compiled();
  if (model.shards) {
    Snapshot& snapshot = take_snapshot();
    model.communicator->finish_gather();
    return snapshot;
  }
  prepare_snapshot();
  snapshot_->read(model.arenas, model.options, model.iteration);
  return *snapshot_;
}

void CheckpointWriter::prepare_snapshot() {
  RunContext& run_context = session_.run_context();
  CompiledModel& model = session_.model().compiled();
  if (model.ticketed != nullptr && model.ticketed->is_in_round()) {
    throw UsageError(
        "a model is saved within an epoch, while parameter servers update it without waiting for all workers; save it "
        "at the end of an epoch, or back it up with --backup-save-freq");
  }
  run_context.writer().finish_gather();
  run_context.report_busy();
  model.synchronize();
  model.communicator->fetch_slots();
  if (compilation_ != session_.model().compilation()) {
    snapshot_.emplace(model.architecture, model.plan(), model.executable(), model.shards ? &*model.shards : nullptr);
    compilation_ = session_.model().compilation();
  }
}

void CheckpointWriter::write_async(BackgroundWriter::ModelDirectory model_directory, std::function<void()> job) {
  session_.run_context().writer().write(*session_.model().compiled().communicator, std::move(model_directory),
                                        std::move(job));
}

std::function<void()> CheckpointWriter::make_job(const std::filesystem::path& path, Snapshot& snapshot) {
  RunContext& run_context = session_.run_context();
  if (!run_context.world().is_chief()) return {};
  if (is_one_of(path, session_.model().origin_files())) run_context.record_overwriting_origin();
  const CompiledModel& model = session_.model().compiled();
  return [&run_context, communication = model.communicator->describe(), facts = facts(), path, &snapshot,
          backups = run_context.backup_directories(), guard = run_context.write_guard(), report = session_.report(),
          iteration = model.iteration]() mutable {
    report.file = path.filename().string();
    report.iteration = iteration;
    snapshot.visit(
        [&](const ModelData& data) { write_making_room(path, backups, [&] { save_model(path, data, guard); }); });
    if (!is_in(path, run_context.options().model_dir)) return;
    const std::filesystem::path history = run_context.options().model_dir / "history.json";
    const RunReport record = complete_report(std::move(report), run_context, communication, facts);
    write_making_room(history, backups, [&] { save_history(history, record, guard); });
  };
}

NamedValues CheckpointWriter::facts() const {
  const CompiledModel& model = session_.model().compiled();
  NamedValues facts = record_of(model.choice);
  facts["precision"] = std::string(model.plan().graph.mixed_bfloat16 ? "mixed_bfloat16" : "float32");
  facts["batch_norm_replicas"] = static_cast<std::int64_t>(session_.model().batch_norm_replicas());
  return facts;
}

void CheckpointWriter::write_live_report() {
  constexpr double pause_s = 2;
  RunContext& run_context = session_.run_context();
  const std::filesystem::path path = value_of(current_environment(), "LOCKSTEP_LIVE_REPORT");
  if (path.empty() || !run_context.launcher().is_active()) return;  // it is the launcher's own variable
  if (!run_context.world().is_chief() || monotonic_seconds() < live_report_at_) return;
  live_report_at_ = monotonic_seconds() + pause_s;
  RunReport report =
      complete_report(session_.report(), run_context, session_.model().compiled().communicator->describe(), facts());
  report.is_live = true;
  const std::string page = report_html(report);
  try {
    write_file_atomically(path, std::as_bytes(std::span(page)), WriteGuard());
  } catch (const Error& error) {  // no reason to stop training
    log_warning(fmt::format("no live report: {}", error.what()));
    live_report_at_ = std::numeric_limits<double>::infinity();
  }
}

void CheckpointWriter::save(const std::filesystem::path& path) {
  require_no_backup_name(path);
  if (!participates()) return;
  session_.model().compiled().release_tensors();  // the copies of the model take their place
  session_.run_context().writer().wait();
  const auto job = make_job(path, take_snapshot_to_write_now());
  if (job) job();
}

void CheckpointWriter::save_async(const std::filesystem::path& path) {
  require_no_backup_name(path);
  if (!participates()) return;
  session_.run_context().writer().wait();
  write_async(path.parent_path(), make_job(path, take_snapshot()));
}

}  // namespace lockstep
