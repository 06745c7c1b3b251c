// See run_context.hpp.
#include "session/run_context.hpp"

#include "backend/make_backend.hpp"
#include "cluster/launcher/exec_launcher.hpp"
#include "cluster/net/host_id.hpp"
#include "cluster/world/interrupts.hpp"
#include "collective/parameter_server/server_communicator.hpp"
#include "collective/parameter_server/worker_communicator.hpp"
#include "core/digest.hpp"
#include "core/environment.hpp"
#include "core/fault_point.hpp"
#include "core/log.hpp"
#include "core/printable.hpp"
#include "options/shared_options.hpp"
#include "ownership/directory_record.hpp"
#include "ownership/job_identity.hpp"
#include "session/choose_backend.hpp"
#include "session/join_tasks.hpp"
#include "session/serve_parameters.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lockstep {

namespace {

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

/// Of all options that change what a job computes or writes, and of what else it computes with.
std::string digest_of_settings(const std::string& further, const Options& options) {
  Digest digest;
  const auto add = [&digest](const std::string& text) { digest.add(text.c_str(), text.size() + 1); };
  const auto add_pairs = [&add](const auto& pairs) {
    for (const auto& [name, value] : pairs) {
      add(name);
      add(value);
    }
  };
  add(further);
  add_pairs(options.program_options);
  Options compared = options;
  // The launcher sets it where workers have left, so that the job computes as before: no other job for that.
  compared.batch_norm_replicas = Options().batch_norm_replicas;
  add_pairs(options_to_agree_on(compared));
  return digest.to_string();
}

DirectoryOwner owner_of(const Options& options, const Environment& environment) {
  DirectoryOwner owner = identify_job(environment);
  if (owner.command.empty()) owner.command = digest_of_command(with_variables(command_line(), environment));
  owner.contents.settings = digest_of_settings({}, options);
  owner.program = options.program;
  owner.host = host_name();
  return owner;
}

/// Parameter servers train data parallel on CPUs.
Options with_settings_of_strategy(Options options) {
  if (options.strategy != StrategyKind::parameter_server) return options;
  if (options.parallelism == Parallelism::automatic) options.parallelism = Parallelism::data;
  if (options.device == Device::automatic) options.device = Device::cpu;
  return options;
}

World make_world(const TaskGroup* tasks) {
  if (tasks == nullptr) return World();
  return {tasks->rank(), static_cast<int>(tasks->workers())};
}

}  // namespace

void RunContext::set_contents(const JobContents& contents) {
  if (std::exchange(has_contents_, true)) return;
  identity_.contents = {.settings = digest_of_settings(contents.settings, options_), .origin = contents.origin};
}

std::pair<std::string, std::string> excerpts_around_difference(const std::string& a, const std::string& b) {
  constexpr std::size_t before = 40;
  constexpr std::size_t shown = 100;
  const auto difference = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const auto cut = [difference](const std::string& text) {
    if (text.size() <= shown) return text;
    // Of JSON the whole member, if it is short: "learning_rate":0.01
    const bool is_json = text.starts_with('{') || text.starts_with('[');
    const std::size_t bracket =
        is_json && difference > 0 ? text.find_last_of("{[,", difference - 1) : std::string::npos;
    const bool is_member = bracket != std::string::npos && difference - bracket <= shown;
    std::size_t begin = is_member ? bracket + 1 : difference > before ? difference - before : 0;
    if (const std::size_t space = text.rfind(' ', begin); !is_member && space != std::string::npos) begin = space + 1;
    const std::size_t end = std::min(is_member ? text.find_first_of("}],", difference) : text.size(), text.size());
    if (is_member && end > difference && end - begin <= shown) return text.substr(begin, end - begin);
    return (begin > 0 ? "... " : "") + text.substr(begin, shown) + (begin + shown < text.size() ? " ..." : "");
  };
  return {cut(a), cut(b)};
}

RunContext::RunContext(const Options& options)
    : options_(with_settings_of_strategy(options)),
      identity_(owner_of(options_, current_environment())),
      tasks_(join_tasks(options_, current_environment(), [this] { report_busy(); })),
      world_(make_world(tasks_.get())),
      writer_(options_.on_checkpoint_failure, [this] { report_busy(); }) {
  if (!launcher_.is_active()) end_on_request(world_.is_chief());
  // A program that writes no model may run alone beside its cluster.
  if (!launcher_.is_active() && !options_.model_dir.empty() && !tasks_)
    require_world_of_tf_config(current_environment(), static_cast<std::size_t>(world_.size()));
  const bool nccl = options_.communication == Communication::nccl;
  CommunicatorOptions control_options = communicator_options();
  if (nccl) control_options.communication = Communication::automatic;
  control_ = tasks_ ? std::make_unique<TaskCommunicator>(*tasks_) : make_communicator(world_, control_options);
  const auto workers = static_cast<std::size_t>(training_workers());
  if (options_.batch_norm_replicas > 0 && batch_norm_replicas() < workers) {
    throw UsageError(
        fmt::format("--batch-norm-replicas {} is less than the {} workers, and each needs one; leave it out, or start "
                    "fewer workers",
                    options_.batch_norm_replicas, workers));
  }
  backend_ = choose_backend(options_, world_, *control_);
  if (nccl && backend_->device_streams() == nullptr) {
    throw UsageError("--communication nccl needs GPUs, but this run computes on the CPU; use auto, shared or mpi");
  }
  if (has_cuda_backend())
    require_equal_on_all_ranks("the device", backend_->device_streams() == nullptr ? "cpu" : "cuda");
  for (const auto& [library, version] : backend_->libraries())
    require_equal_on_all_ranks("the version of " + library, version, "install the same version on all workers");
  require_equal_on_all_ranks("the instruction set", backend_->instruction_set(),
                             "set ONEDNN_MAX_CPU_ISA to the smaller one on all workers, so that all compute the same "
                             "bits");
  report_busy();
}

RunContext::~RunContext() {
  if (std::uncaught_exceptions() > 0) return;
  report_busy();
  try {
    writer_.wait();
    writer_.require_last_models_written();
  } catch (const Error& error) {
    World::end_with_error(static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {
    World::end_with_error(static_cast<int>(ExitCode::internal), error.what());
  }
  // Recorded before MPI_Finalize: a rank that exits with 0 ends the job, even if this one is killed meanwhile.
  try {
    // The model directory last: its record ends the job, and whoever is killed before that removes the backups later.
    for (const bool of_model : {false, true}) {
      for (DirectoryLock& lock : backups_.owned.locks()) {
        if ((lock.directory() == options_.model_dir) != of_model || (backups_.keep_their_locks && !of_model)) continue;
        fault_point("record");
        lock.record_finish();
      }
    }
  } catch (const IoError& error) {
    World::end_with_error(static_cast<int>(error.code()), error.what());
  }
  if (tasks_) {
    try {
      begin_service();
      tasks_->finish();
      launcher_.report_finished();  // nobody waits for a successor of this process any more
      tasks_->say_goodbye();
    } catch (const Error& error) {
      World::end_with_error(static_cast<int>(error.code()), error.what());
    }
  }
  backups_.remove_on_exit = world_.is_chief();
  fault_point("finished");
}

RunContext::FinishedBackupsRemover::~FinishedBackupsRemover() {
  if (!remove_on_exit) return;
  fault_point("clean");
  std::vector<std::filesystem::path> left;  // whose record tells the next job that their backups belong to nobody
  for (const BackupDirectory& directory : directories) {
    try {
      owned.require_owned(directory.path() / "any");
    } catch (const Error& error) {  // the job has written everything
      log_warning(error.what());
      continue;
    }
    if (directory.clear()) continue;
    left.push_back(directory.path());
    log_warning(fmt::format("not all backups in {} could be removed; the next job there removes them",
                            directory.path().string()));
  }
  for (DirectoryLock& lock : owned.locks()) {
    if (std::ranges::find(left, lock.directory()) == left.end())
      lock.release_finished(lock.directory() == model_directory);
  }
  for (const BackupDirectory& directory : directories) directory.remove_if_empty();
}

void RunContext::begin_training_loop() {
  if (!launcher_.is_active()) begin_interruptible(world_.is_chief());
}

void RunContext::end_training_loop() noexcept {
  if (!launcher_.is_active()) end_interruptible();
}

void RunContext::begin_service() {
  if (!tasks_ || tasks_->is_serving()) return;
  report_busy();
  tasks_->begin_service();
  if (tasks_->is_server()) serve_parameters(*this);
}

StopRequest RunContext::stop_request() const noexcept {
  if (tasks_) return std::max(launcher_.request(), tasks_->stop_request());
  return is_interrupted() ? StopRequest::after_this_step : launcher_.request();
}

std::string RunContext::describe_stop() const {
  return launcher_.is_active() ? "Leaving at the launcher's request" : "Interrupted";
}

void RunContext::leave(const std::string& message) {
  report_busy();
  writer_.wait();
  fault_point("leave");
  if (world_.is_chief()) log_info(message);
  World::end_together(static_cast<int>(ExitCode::temporary));
}

void RunContext::end_finished_job(const std::string& message) {
  if (world_.is_chief()) log_info(message);
  World::end_together(static_cast<int>(ExitCode::success));
}

void RunContext::print(const std::string& line) const {
  if (prints()) std::cout << printable(line) << std::endl;
}

void RunContext::print_text(const std::string& lines) const {
  if (prints()) std::cout << printable(lines) << std::flush;
}

CommunicatorOptions RunContext::communicator_options() {
  return {.communication = options_.communication,
          .timeout = options_.collective_timeout,
          .while_waiting = [this](bool is_waiting) { launcher_.progress().report_waiting(is_waiting); }};
}

std::unique_ptr<Communicator> RunContext::new_communicator() {
  if (tasks_) {
    if (tasks_->is_server()) return std::make_unique<ServerCommunicator>(*tasks_, update_policy());
    return std::make_unique<WorkerCommunicator>(*tasks_, update_policy());
  }
  CommunicatorOptions options = communicator_options();
  options.device = backend_->device_streams();
  options.compression = options_.gradient_compression;
  return make_communicator(world_, options);
}

UpdatePolicy RunContext::update_policy() const {
  return lockstep::update_policy(options_, tasks_->workers(), tasks_->has_chief_task());
}

int RunContext::training_workers() const {
  if (!tasks_) return world_.size();
  return static_cast<int>(update_policy().training_workers(tasks_->workers()));
}

std::optional<int> RunContext::training_rank() const {
  const int others = world_.size() - training_workers();  // before the first of them
  if (world_.rank() < others) return std::nullopt;
  return world_.rank() - others;
}

std::size_t RunContext::batch_norm_replicas() const {
  return static_cast<std::size_t>(options_.batch_norm_replicas > 0 ? options_.batch_norm_replicas : training_workers());
}

std::size_t RunContext::batch_size(int requested) const {
  if (requested < 0) {
    throw UsageError("batch_size is " + std::to_string(requested) +
                     " but must be at least 1, or 0 for --global-batch-size");
  }
  return requested > 0 ? static_cast<std::size_t>(requested) : default_batch_size();
}

std::string RunContext::participant(std::size_t index) const {
  const auto workers = static_cast<std::size_t>(world_.size());
  if (tasks_) return tasks_->short_name_of(index);
  return index < workers ? fmt::format("worker {}", index) : fmt::format("ps {}", index - workers);
}

void RunContext::require_equal_on_all_ranks(const std::string& what, const std::string& value,
                                            const std::string& remedy) {
  std::vector<std::string> values = control_->all_gather(value);
  if (world_.rank() > 0) values[static_cast<std::size_t>(world_.rank())] = value;  // not that of a lost predecessor
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    if (values[rank] == values[0]) continue;
    const auto [mine, theirs] = excerpts_around_difference(values[0], values[rank]);
    const char* all = tasks_ ? "tasks" : "workers";
    throw UsageError(fmt::format("the {} disagree about {}: {} has {}, {} has {}; {}", all, what, participant(0), mine,
                                 participant(rank), theirs,
                                 remedy.empty() ? fmt::format("use the same on all {}", all) : remedy));
  }
}

}  // namespace lockstep
