// See strategy.hpp.
#include "checkpoint/atomic_file.hpp"
#include "checkpoint/backup/backup_directory.hpp"
#include "checkpoint/keras/keras_config.hpp"
#include "core/available_cpus.hpp"
#include "core/format_number.hpp"
#include "core/log.hpp"
#include "options/shared_options.hpp"
#include "ownership/finished_job.hpp"
#include "session/read_on_chief.hpp"
#include "session/save_history.hpp"
#include "training/error_handler.hpp"
#include "training/model_parts.hpp"

#include <lockstep/checkpoint/model_from_json.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/training/strategy.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace lockstep {

namespace {

std::shared_ptr<RunContext> make_run_context(const Options& options) {
  install_error_handler();  // before anything that can throw, such as joining the world
  return std::make_shared<RunContext>(options);
}

/// Compares the options one by one before anything is loaded, so that the error names the option that differs.
void require_equal_options(RunContext& run_context) {
  for (const auto& [option, value] : options_to_agree_on(run_context.options())) {
    run_context.require_equal_on_all_ranks(option, value);
  }
  std::string program_options;
  for (const auto& [name, value] : run_context.options().program_options) program_options += " --" + name + " " + value;
  run_context.require_equal_on_all_ranks("the program's own options",
                                         program_options.empty() ? "none" : program_options.substr(1));
}

/// A model program chooses the name of its model itself. It may not replace what a restart begins with.
void require_no_input_there(const Options& options) {
  if (options.initial_weights.empty() || options.program.starts_with("lockstep ")) return;
  std::error_code unknown;
  const std::filesystem::path directory = std::filesystem::absolute(options.initial_weights).parent_path();
  if (!std::filesystem::equivalent(directory, options.model_dir, unknown)) return;
  throw UsageError(
      fmt::format("--initial-weights {} lies in --model-dir, where this program writes its model; move it, "
                  "or choose another --model-dir",
                  options.initial_weights.string()));
}

/// Throws on all ranks if the chief cannot write the model.
void require_chief_can_write(RunContext& run_context) {
  const std::filesystem::path& directory = run_context.options().model_dir;
  if (directory.empty()) return;
  run_on_chief(run_context, [&] {
    require_no_input_there(run_context.options());
    for (const char* record : {"history.json", "report.html"}) require_writable(directory / record);
  });
}

}  // namespace

Strategy::Strategy(const Options& options) : run_context_(make_run_context(options)) {
  require_equal_options(*run_context_);
  require_chief_can_write(*run_context_);
  if (!run_context_->prints()) return;
  const int workers = run_context_->training_workers();
  const char* const coordinator = workers < num_workers() ? "a coordinator and " : "";
  const auto& hosts = run_context_->world().host_of_rank();
  const bool has_servers = run_context_->tasks() != nullptr;
  const std::ptrdiff_t local_workers = std::ranges::count(hosts, hosts[static_cast<std::size_t>(rank())]);
  const std::string shared_cores =
      local_workers > online_cpus() ? fmt::format("; {} workers share {} CPUs", local_workers, online_cpus()) : "";
  std::cout << "Lockstep " LOCKSTEP_VERSION ": "
            << (workers == 1 && !has_servers ? "1 worker"
                                             : fmt::format("{}{}, {}", coordinator, count_of(workers, "worker"),
                                                           run_context_->control().describe()))
            << "; " << run_context_->backend().describe() << shared_cores << std::endl;
}

Strategy::~Strategy() = default;

int Strategy::rank() const noexcept { return run_context_->world().rank(); }
int Strategy::num_workers() const noexcept { return run_context_->world().size(); }
bool Strategy::is_chief() const noexcept { return run_context_->world().is_chief(); }

void Strategy::report_busy() const noexcept { run_context_->report_busy(); }

void Strategy::warn_of_replacing(const std::filesystem::path& file) const {
  std::error_code unknown;
  if (!is_chief() || !std::filesystem::exists(file, unknown)) return;
  const Options& options = run_context_->options();
  const bool resumes = options.resume != Resume::never && !BackupDirectory(options.backup_dir).list().empty();
  if (resumes) return;  // the file is perhaps this job's own
  try {
    const DirectoryOwner& job = run_context_->identity();
    if (job.outlives_launchers && has_finished(options.model_dir, job)) return;  // so this run will write nothing
  } catch (const UsageError&) {                                                  // fit() refuses the job
    return;
  }
  log_warning(fmt::format("{} is replaced when this run ends; to keep it, give another --model-dir", file.string()));
}

Model Strategy::build(Architecture architecture) {
  return Model(std::make_unique<ModelParts>(run_context_, std::move(architecture)));
}

Model Strategy::load_model(const std::filesystem::path& path, const ChooseCompileOptions& choose) {
  if (path.extension() == ".json") {
    Architecture architecture = model_from_json(read_text_file(*run_context_, path), path.string());
    std::optional<CompileOptions> compile_options;
    if (choose) compile_options = choose(architecture, {});
    Model model = build(std::move(architecture));
    if (compile_options) model.compile(*compile_options);
    return model;
  }
  const LoadedModel file = read_model_file(*run_context_, path);
  check_weights(file.path, file.model.weights, file.model.architecture);
  std::optional<SavedCompileOptions> saved;
  if (file.model.compile_state) {
    saved = static_cast<const SavedCompileOptions&>(*file.model.compile_state);
    saved->saved_iterations = static_cast<std::uint64_t>(file.model.compile_state->iteration);
  }
  std::optional<CompileOptions> compile_options = saved;
  if (choose) {
    compile_options = choose(file.model.architecture, saved);
  } else if (saved && !saved->refusals.first().empty()) {
    throw DataError(saved->refusals.first());
  }
  auto parts = std::make_unique<ModelParts>(run_context_, file.model.architecture);
  if (compile_options) parts->model.compile(*compile_options);
  if (run_context_->options().initial_weights.empty()) {
    parts->model.load(file);
    parts->model.add_to_origin(file);
  }
  return Model(std::move(parts));
}

void Strategy::print_line(const std::string& line) const { run_context_->print(line); }

}  // namespace lockstep
