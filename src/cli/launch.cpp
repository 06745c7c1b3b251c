// See launch.hpp.
#include "cli/launch.hpp"

#include "cluster/config/job_token.hpp"
#include "cluster/config/strategy_variable.hpp"
#include "cluster/config/task_options.hpp"
#include "cluster/config/tf_config.hpp"
#include "cluster/launcher/container_init.hpp"
#include "cluster/launcher/launcher.hpp"
#include "cluster/rendezvous/placement.hpp"
#include "cluster/world/member_listeners.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"
#include "core/printable.hpp"
#include "options/parse_rows.hpp"
#include "options/shared_options.hpp"
#include "ownership/finished_job.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace lockstep {
namespace {

struct LaunchOptions {
  LauncherOptions launcher;
  std::uint64_t workers = 0;  ///< 0: not given
  std::string job_token_file;
  std::string job_id;
  bool insecure = false;
  std::filesystem::path model_dir;
};

/// Binds a range of ports, written FIRST-LAST.
OptionBinding port_range(PortRange& ports) {
  const auto set = [&ports](const OptionValue& given) {
    const std::size_t dash = std::min(given.value.find('-'), given.value.size());
    const auto first = parse_number<std::uint16_t>(given.value.substr(0, dash));
    const auto last = parse_number<std::uint16_t>(given.value.substr(std::min(dash + 1, given.value.size())));
    if (!first || !last || *first == 0 || *first > *last) refuse(given, "a range of ports such as 40000-40999");
    ports = {*first, *last};
  };
  const auto print = [&ports] { return ports.first == 0 ? "" : fmt::format("{}-{}", ports.first, ports.last); };
  return {set, print, [print] { return NamedValue(print()); }};
}

/// The rows refer to `options`, whose values are the defaults.
std::vector<OptionRow> launch_rows(LaunchOptions& options) {
  constexpr int max_restarts = 1000000;
  SupervisionTimeouts& timeouts = options.launcher.rendezvous.timeouts;
  return {
      {.name = "rendezvous-timeout",
       .metavar = "SECONDS",
       .help = "time for all workers to connect",
       .value = seconds(timeouts.rendezvous_timeout, 1)},
      {.name = "max-restarts",
       .metavar = "N",
       .help = "restarts without progress before the job fails",
       .value = whole_number(timeouts.max_restarts, 0, max_restarts)},
      {.name = "min-workers",
       .metavar = "N",
       .help = "continue without missing workers if N are connected",
       .value = whole_number(timeouts.min_workers, 0),
       .default_text = "all"},
      {.name = "rejoin-timeout",
       .metavar = "SECONDS",
       .help = "time to wait before continuing without missing workers",
       .value = seconds(timeouts.rejoin_timeout, 0.1)},
      {.name = "leave-timeout",
       .metavar = "SECONDS",
       .help = "time for trainers to save after SIGTERM",
       .value = seconds(timeouts.leave_timeout, 1)},
      {.name = "workers",
       .metavar = "N",
       .help = "trainers on this host if TF_CONFIG lists no workers",
       .value = whole_number(options.workers, 1, max_ranks_per_worker),
       .default_text = "1"},
      {.name = "ranks-per-worker",
       .metavar = "N",
       .help = "trainers on this worker",
       .value = whole_number(options.launcher.ranks, 1, max_ranks_per_worker)},
      {.name = "mpi-ports",
       .metavar = "FIRST-LAST",
       .help = "ports on which trainers listen",
       .value = port_range(options.launcher.mpi_ports),
       .default_text = "any"},
      {.name = "job-name",
       .metavar = "NAME",
       .help = "refuse launchers of jobs with another name",
       .value = text(options.launcher.rendezvous.job),
       .default_text = "none"},
      {.name = "job-id",
       .metavar = "ID",
       .help = "identifies the job when all its launchers start anew, as pods do",
       .value = text(options.job_id),
       .default_text = "none"},
      {.name = "model-dir",
       .metavar = "PATH",
       .help = "where a worker sees whether the job --job-id has finished",
       .value = path(options.model_dir),
       .default_text = "none",
       .template_variable = "MODEL_DIR"},
      {.name = "job-token-file",
       .metavar = "FILE",
       .help = "first line: the job token, instead of LOCKSTEP_JOB_TOKEN",
       .value = text(options.job_token_file),
       .default_text = "none"},
      {.name = "insecure",
       .help = "train on several hosts without a job token: anyone who reaches the chief's port can join",
       .value = flag(options.insecure)},
      {.name = "heartbeat-timeout",
       .metavar = "SECONDS",
       .help = "silence after which a worker is lost",
       .value = seconds(timeouts.heartbeat_timeout, 1)},
      {.name = "stall-timeout",
       .metavar = "SECONDS",
       .help = "time without a step after which training is stuck; 0: never",
       .value = seconds(timeouts.stall_timeout, 1, true)},
      {.name = "busy-timeout",
       .metavar = "SECONDS",
       .help = "silence between steps after which training is stuck; 0: never",
       .value = seconds(timeouts.busy_timeout, 1, true)},
      {.name = "start-timeout",
       .metavar = "SECONDS",
       .help = "time for trainers to form the MPI world before a new one is tried; 0: no limit",
       .value = seconds(timeouts.start_timeout, 1, true)},
      {.name = "status-port",
       .metavar = "PORT",
       .help = "serve /healthz, /metrics and /report on PORT",
       .value = whole_number(options.launcher.status_port, 0),
       .default_text = "none"},
      {.name = "report-interval",
       .metavar = "SECONDS",
       .help = "time between log lines about missing workers",
       .value = seconds(timeouts.report_interval, 0.1)},
  };
}

/// A program that becomes its own launcher has no command line for these options, so each is read from a variable too.
LaunchOptions read_options(std::span<const std::string> args, const Environment& environment) {
  LaunchOptions options;
  const std::vector<OptionRow> rows = launch_rows(options);
  parse_rows(
      args, environment, rows,
      {.name = "lockstep launch",
       .description =
           "lockstep launch [OPTIONS] -- PROGRAM [ARGS...]\n\n"
           "Runs PROGRAM on all workers of TF_CONFIG or CLUSTER_CONFIG, or N times on this host with --workers N.\n"
           "Start this command on every worker, in any order. When a trainer or a launcher is lost, the others\n"
           "wait for it, and training resumes from the last backup.",
       .footer = "Every option is also read from the environment: LOCKSTEP_MAX_RESTARTS for --max-restarts, "
                 "and so on.",
       .operand_remedy = "the program that the workers run comes after --, as in lockstep launch -- python train.py"});
  SupervisionTimeouts& timeouts = options.launcher.rendezvous.timeouts;
  if (timeouts.start_timeout > 0) timeouts.stacks_after = std::min(timeouts.stacks_after, timeouts.start_timeout / 2);
  timeouts.heartbeat_interval = std::min(timeouts.heartbeat_interval, timeouts.heartbeat_timeout / 4);
  // The program may read the others.
  for (const auto& [name, hint, is_of_other] : find_unknown_variables(environment, rows, {})) {
    if (!hint.empty() && !is_of_other) log_warning("no option reads the variable " + name + hint);
  }
  return options;
}

/// The tasks of a job with parameter servers find each other themselves, and the launcher supervises its own one.
void supervise_one_task(LaunchOptions& options) {
  LauncherOptions& launcher = options.launcher;
  if (!launcher.cluster.tasks.empty()) {
    const Task own = launcher.cluster.own_task();
    launcher.cluster = {.tasks = {{own.type, own.index, {"127.0.0.1", 0}}}, .rank = 0, .warnings = {}};
  }
  launcher.trainers_are_tasks = true;
  const SupervisionTimeouts& timeouts = launcher.rendezvous.timeouts;
  launcher.environment["LOCKSTEP_RENDEZVOUS_TIMEOUT"] = fmt::format("{}", timeouts.rendezvous_timeout);
  launcher.environment["LOCKSTEP_REPORT_INTERVAL"] = fmt::format("{}", timeouts.report_interval);
  if (!launcher.rendezvous.job.empty()) launcher.environment["LOCKSTEP_JOB_NAME"] = launcher.rendezvous.job;
  if (!options.job_token_file.empty()) {
    launcher.environment["LOCKSTEP_JOB_TOKEN_FILE"] = std::filesystem::absolute(options.job_token_file).string();
  }
}

}  // namespace

ExitCode launch(std::span<const std::string> args, std::ostream& /*out*/) {
  // A launcher within another job's trainer has that job's peers in its environment.
  unsetenv(member_addresses_variable);
  Environment environment = current_environment();
  std::vector<std::string> own(args.begin(), args.end());
  const std::vector<std::string> task_warnings = take_task_options(own, environment);
  const auto end_of_options = std::find(own.begin(), own.end(), "--");
  const auto num_options = static_cast<std::size_t>(end_of_options - own.begin());
  LaunchOptions options = read_options(std::span(own).first(num_options), environment);
  if (num_options + 1 >= own.size()) {
    throw UsageError("no program to launch; use lockstep launch [OPTIONS] -- PROGRAM [ARGS...]");
  }
  options.launcher.command.assign(end_of_options + 1, own.end());
  options.launcher.environment = environment;
  require_job_id(options.job_id);
  if (!options.job_id.empty()) options.launcher.environment["LOCKSTEP_JOB_ID"] = options.job_id;
  take_strategy(options.launcher.command, options.launcher.environment);
  const bool has_servers = has_parameter_servers(options.launcher.environment);
  options.launcher.cluster = read_cluster_spec(options.launcher.environment);
  if (value_of(environment, "TF_CONFIG").empty() && !options.launcher.cluster.tasks.empty()) {
    options.launcher.environment["TF_CONFIG"] = to_tf_config(options.launcher.cluster);
  }
  if (has_servers && (options.workers > 1 || options.launcher.ranks > 1)) {
    throw UsageError(
        "with --strategy parameter-server each task of TF_CONFIG is one trainer; leave --workers and "
        "--ranks-per-worker out");
  }
  if (has_servers && options.launcher.rendezvous.timeouts.min_workers > 0)
    throw UsageError("with --strategy parameter-server all tasks are needed; leave --min-workers out");
  if (options.workers > 0 && options.launcher.cluster.tasks.empty()) {
    if (options.launcher.ranks > 1) {
      throw UsageError("--workers and --ranks-per-worker both count the trainers of this host; give one of them");
    }
    options.launcher.ranks = options.workers;
  } else if (const std::size_t tasks = options.launcher.cluster.tasks.size();
             options.workers > 0 && options.workers != tasks) {
    throw UsageError(fmt::format("--workers is {}, but TF_CONFIG lists {} {}, which decide; leave --workers out",
                                 options.workers, tasks, tasks == 1 ? "worker" : "workers"));
  }
  options.launcher.rendezvous.token = JobToken::load(options.launcher.environment, options.job_token_file);
  const JobToken& token = options.launcher.rendezvous.token;
  if (!token.is_set() && !options.insecure && options.launcher.cluster.spans_hosts()) {
    throw UsageError(
        "no job token is set, so anyone who reaches the chief's port could join this job; give all workers the same "
        "secret (openssl rand -hex 16) with --job-token-file or LOCKSTEP_JOB_TOKEN, or accept it with --insecure");
  }
  if (token.is_short() && options.launcher.cluster.is_chief()) {
    log_warning(
        "the job token has fewer than 16 characters and could be guessed; use the output of openssl rand -hex 16");
  }
  const auto workers = std::max<std::size_t>(1, options.launcher.cluster.tasks.size());
  if (const int min_workers = options.launcher.rendezvous.timeouts.min_workers;
      min_workers > static_cast<int>(workers)) {
    throw UsageError(fmt::format("--min-workers is {}, but TF_CONFIG lists {} {}; it must be from 0 to {}", min_workers,
                                 workers, workers == 1 ? "worker" : "workers", workers));
  }
  for (const std::string& warning : task_warnings) log_warning(warning);
  for (const std::string& warning : options.launcher.cluster.warnings) log_warning(warning);
  const std::string command = digest_of_command(with_variables(options.launcher.command, options.launcher.environment));
  options.launcher.environment["LOCKSTEP_COMMAND"] = command;
  if (!options.job_id.empty() && (workers > 1 || has_servers)) {  // trainers of one worker look for themselves
    options.launcher.rendezvous.has_finished = [job = DirectoryOwner{.job = options.job_id, .command = command},
                                                directory = options.model_dir] {
      if (!has_finished(directory, job)) return false;
      log_info(fmt::format("job {} has finished already, according to {}; nothing to do", printable(job.job),
                           directory.string()));
      return true;
    };
  }
  if (has_servers) supervise_one_task(options);
  run_init_if_pid_1();
  return static_cast<ExitCode>(Launcher(options.launcher).run());
}

}  // namespace lockstep
