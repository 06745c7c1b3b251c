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
  const auto add = [&app](const std::string& name, auto& value, const char* placeholder, const char* help) {
    app.add_option(name, value, help)->option_text(placeholder)->envname(variable_of_option(name.substr(2)));
  };
  add("--rendezvous-timeout", limits.rendezvous_timeout, "SECONDS", "how long to wait for all workers to come (600)");
  add("--max-restarts", limits.max_restarts, "N", "restarts without progress before it gives up (10)");
  add("--min-workers", limits.min_workers, "N", "go on without the others when so many are there (all)");
  add("--rejoin-timeout", limits.rejoin_timeout, "SECONDS", "how long the others are waited for then (60)");
  add("--leave-timeout", limits.leave, "SECONDS", "how long trainers may take to save when told to go (25)");
  add("--ranks-per-worker", options.launcher.ranks, "N", "trainers on this worker (1)");
  add("--mpi-ports", options.mpi_ports, "FIRST-LAST", "where trainers may be reached by each other (any)");
  add("--job-name", options.launcher.rendezvous.job, "NAME", "who has another name is refused (none)");
  add("--job-token-file", options.job_token_file, "FILE",
      "its first line is the job's secret, instead of LOCKSTEP_JOB_TOKEN's");
  add("--silence", limits.silence, "SECONDS", "without a sign of life a worker is lost after (4)");
  add("--stall-timeout", limits.stuck, "SECONDS", "without a step training is stuck after (4; 0: never)");
  add("--busy-timeout", limits.busy, "SECONDS", "without a sign of life it is so between steps (600; 0: never)");
  add("--status-port", options.launcher.status_port, "PORT", "answer /healthz and /metrics there (none)");
  add("--report", limits.report, "SECONDS", "how often to tell who is missing (10)");
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
