// See launch.hpp.
#include "cli/launch.hpp"

#include "cluster/init_process.hpp"
#include "cluster/job_token.hpp"
#include "cluster/launcher.hpp"
#include "cluster/tf_config.hpp"
#include "cluster/world_map.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <ostream>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep {
namespace {

constexpr double longest_time = 30.0 * 24 * 3600;  // seconds
constexpr int most_restarts = 1000000;

struct LaunchOptions {
  LauncherOptions launcher;
  std::string job_token_file;
  std::string mpi_ports;
};

void check_time(const char* option, double seconds, double least) {
  if (seconds >= least && seconds <= longest_time) return;
  throw UsageError(std::string(option) + " must be a number of seconds, at least " + (least < 1 ? "0.1" : "1") +
                   "; see lockstep launch --help.");
}

/// "40000-40999".
PortRange read_ports(const std::string& text) {
  PortRange ports;
  const char* const end = text.data() + text.size();
  const auto [dash, first_error] = std::from_chars(text.data(), end, ports.first);
  if (first_error == std::errc() && dash != end && *dash == '-') {
    const auto [last_end, last_error] = std::from_chars(dash + 1, end, ports.last);
    if (last_error == std::errc() && last_end == end && ports.first > 0 && ports.first <= ports.last) return ports;
  }
  throw UsageError("--mpi-ports is '" + text + "'; give the first and the last, as 40000-40999");
}

/// False where only the help was asked for. A bare program cannot give options: each has a variable.
bool read_options(std::span<const std::string> args, LaunchOptions& options, std::ostream& out) {
  Supervision& limits = options.launcher.rendezvous.limits;
  CLI::App app(
      "lockstep launch [OPTIONS] -- PROGRAM [ARGS...]\n\n"
      "Runs PROGRAM on all workers of TF_CONFIG: start this on every one of them, in whatever order. When a\n"
      "trainer or a launcher is lost the others wait for it, and all go on from the last backup.",
      "lockstep launch");
  app.add_option("--rendezvous-timeout", limits.rendezvous_timeout, "how long to wait for all workers to come (600)")
      ->option_text("SECONDS")
      ->envname("LOCKSTEP_RENDEZVOUS_TIMEOUT");
  app.add_option("--max-restarts", limits.max_restarts, "restarts without progress before it gives up (10)")
      ->option_text("N")
      ->envname("LOCKSTEP_MAX_RESTARTS");
  app.add_option("--min-workers", limits.min_workers, "go on without the others when so many are there (all)")
      ->option_text("N")
      ->envname("LOCKSTEP_MIN_WORKERS");
  app.add_option("--rejoin-timeout", limits.rejoin_timeout, "how long the others are waited for then (60)")
      ->option_text("SECONDS")
      ->envname("LOCKSTEP_REJOIN_TIMEOUT");
  app.add_option("--leave-timeout", limits.leave, "how long trainers may take to save when told to go (25)")
      ->option_text("SECONDS")
      ->envname("LOCKSTEP_LEAVE_TIMEOUT");
  app.add_option("--ranks-per-worker", options.launcher.ranks, "trainers on this worker (1)")
      ->option_text("N")
      ->envname("LOCKSTEP_RANKS_PER_WORKER");
  app.add_option("--mpi-ports", options.mpi_ports, "where trainers may be reached by each other (any)")
      ->option_text("FIRST-LAST")
      ->envname("LOCKSTEP_MPI_PORTS");
  app.add_option("--job-name", options.launcher.rendezvous.job, "who has another name is refused (none)")
      ->option_text("NAME")
      ->envname("LOCKSTEP_JOB_NAME");
  app.add_option("--job-token-file", options.job_token_file,
                 "its first line is the job's secret, instead of LOCKSTEP_JOB_TOKEN's")
      ->option_text("FILE")
      ->envname("LOCKSTEP_JOB_TOKEN_FILE");
  app.add_option("--silence", limits.silence, "without a sign of life a worker is lost after (4)")
      ->option_text("SECONDS")
      ->envname("LOCKSTEP_SILENCE");
  app.add_option("--stall-timeout", limits.stuck, "without a step training is stuck after (4; 0: never)")
      ->option_text("SECONDS")
      ->envname("LOCKSTEP_STALL_TIMEOUT");
  app.add_option("--busy-timeout", limits.busy, "without a sign of life it is so between steps (600; 0: never)")
      ->option_text("SECONDS")
      ->envname("LOCKSTEP_BUSY_TIMEOUT");
  app.add_option("--status-port", options.launcher.status_port, "answer /healthz and /metrics there (none)")
      ->option_text("PORT")
      ->envname("LOCKSTEP_STATUS_PORT");
  app.add_option("--report", limits.report, "how often to tell who is missing (10)")
      ->option_text("SECONDS")
      ->envname("LOCKSTEP_REPORT");
  app.footer("Every option is also read from the environment: LOCKSTEP_MAX_RESTARTS for --max-restarts, and so on.");
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());  // as CLI11 wants them
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    out << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; see lockstep launch --help.");
  }
  check_time("--rendezvous-timeout", limits.rendezvous_timeout, 1);
  check_time("--rejoin-timeout", limits.rejoin_timeout, 0.1);
  check_time("--leave-timeout", limits.leave, 1);
  check_time("--silence", limits.silence, 1);
  check_time("--report", limits.report, 0.1);
  if (limits.stuck != 0) check_time("--stall-timeout", limits.stuck, 1);
  if (limits.busy != 0) check_time("--busy-timeout", limits.busy, 1);
  limits.heartbeat = std::min(limits.heartbeat, limits.silence / 4);
  if (limits.max_restarts < 0 || limits.max_restarts > most_restarts) {
    throw UsageError("--max-restarts must be from 0 to 1000000; see lockstep launch --help.");
  }
  if (options.launcher.ranks < 1 || options.launcher.ranks > most_ranks_each) {
    throw UsageError("--ranks-per-worker must be from 1 to " + std::to_string(most_ranks_each) +
                     "; see lockstep launch --help.");
  }
  return true;
}

}  // namespace

ExitCode launch(std::span<const std::string> args, std::ostream& out) {
  LaunchOptions options;
  const auto end_of_options = std::find(args.begin(), args.end(), "--");
  const auto own = static_cast<std::size_t>(end_of_options - args.begin());
  if (!read_options(args.first(own), options, out)) return ExitCode::success;
  if (own + 1 >= args.size()) {
    throw UsageError("lockstep launch needs a program: lockstep launch [OPTIONS] -- PROGRAM [ARGS...]");
  }
  options.launcher.command.assign(end_of_options + 1, args.end());
  options.launcher.environment = current_environment();
  options.launcher.cluster = cluster_of(options.launcher.environment);
  if (!options.mpi_ports.empty()) options.launcher.mpi_ports = read_ports(options.mpi_ports);
  options.launcher.rendezvous.token = JobToken::of(options.launcher.environment, options.job_token_file);
  const auto workers = std::max<std::size_t>(1, options.launcher.cluster.tasks.size());
  if (const int least = options.launcher.rendezvous.limits.min_workers;
      least < 0 || least > static_cast<int>(workers)) {
    throw UsageError("--min-workers is " + std::to_string(least) + ", but TF_CONFIG lists " + std::to_string(workers) +
                     (workers == 1 ? " worker" : " workers") + "; give at most so many");
  }
  for (const std::string& warning : options.launcher.cluster.warnings) log_warning(warning);
  run_as_child_of_process_1();
  return static_cast<ExitCode>(Launcher(options.launcher).run());
}

}  // namespace lockstep
