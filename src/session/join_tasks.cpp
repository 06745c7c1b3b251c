// See join_tasks.hpp.
#include "session/join_tasks.hpp"

#include "cluster/config/strategy_variable.hpp"
#include "cluster/config/tf_config.hpp"
#include "cluster/parameter_server/task_links.hpp"
#include "cluster/world/launcher_connection.hpp"
#include "cluster/world/world.hpp"
#include "core/format_number.hpp"
#include "core/log.hpp"
#include "core/parse_number.hpp"
#include "plan/server_placement.hpp"

#include <lockstep/core/error.hpp>

#include <fmt/format.h>
#include <malloc.h>

#include <cstdint>
#include <string>
#include <utility>

namespace lockstep {

namespace {

void check(const Options& options, const Environment& environment) {
  const auto refuse = [](const std::string& what) { throw UsageError("--strategy parameter-server " + what); };
  if (options.parallelism == Parallelism::tensor)
    refuse("trains data parallel; leave --parallelism tensor out, or use --strategy mirrored");
  if (options.device == Device::cuda) refuse("computes on CPUs; leave --device cuda out, or use --strategy mirrored");
  if (options.gradient_compression != GradientCompression::none)
    refuse("sends gradients as they are; leave --gradient-compression out");
  if (options.communication != Communication::automatic) refuse("has its own connections; leave --communication out");
  static_cast<void>(parse_server_placement(options.ps_placement, "--ps-placement"));
  const std::string size = value_of(environment, "WORLD_SIZE");
  if (environment.contains("LOCKSTEP_CONTROL_FD") && size != "1" && !size.empty()) {
    refuse("needs a launcher that knows it: set LOCKSTEP_STRATEGY=parameter-server for lockstep launch");
  }
}

/// Whoever wants another kind of training does not get it silently: a launcher that knows of parameter servers gives
/// each trainer a world of its own, in which each would train alone.
void require_no_servers(const Options& options, const Environment& environment) {
  if (environment.contains("LOCKSTEP_CONTROL_FD") && has_parameter_servers(environment)) {
    throw UsageError(
        "lockstep launch was told of parameter servers (LOCKSTEP_STRATEGY), but this program does not use them; add "
        "--strategy parameter-server, or launch it without the variable (lockstep evaluate and predict have none)");
  }
  const auto refuse = [](const std::string& option) {
    throw UsageError(option + " is for parameter servers; add --strategy parameter-server, or leave it out");
  };
  if (options.ps_mode != ServerMode::synchronous) refuse("--ps-mode asynchronous");
  if (options.max_staleness >= 0) refuse("--max-staleness");
  if (options.replicas_to_aggregate > 0) refuse("--replicas-to-aggregate");
  if (options.ps_placement != Options().ps_placement) refuse("--ps-placement");
}

/// Messages are as large as buckets. Without this the allocator returns their memory to the system after each, and
/// every page of the next one is a fault.
void keep_freed_memory() {
  constexpr int most = 1 << 30;
  (void)mallopt(M_MMAP_THRESHOLD, most);
  (void)mallopt(M_TRIM_THRESHOLD, most);
}

double seconds_of(const Environment& environment, const std::string& name, double otherwise) {
  return parse_number<double>(value_of(environment, name)).value_or(otherwise);
}

std::shared_ptr<TaskLinks> connect(const ClusterSpec& cluster, const TaskLinkOptions& options) {
  try {
    return std::make_shared<TaskLinks>(cluster, options);
  } catch (const TasksNeverCameError&) {
    LauncherConnection::report_tasks_never_came();
    throw;
  }
}

}  // namespace

UpdatePolicy update_policy(const Options& options, std::size_t workers, bool has_chief_task) {
  const auto aggregated = static_cast<std::size_t>(options.replicas_to_aggregate);
  if (options.ps_mode == ServerMode::synchronous) {
    if (options.max_staleness >= 0)
      throw UsageError("--max-staleness is for --ps-mode asynchronous; set it, or leave --max-staleness out");
    if (aggregated > workers) {
      throw UsageError(fmt::format("--replicas-to-aggregate is {}, but there {} {}; use at most as many", aggregated,
                                   workers == 1 ? "is" : "are", count_of(workers, "worker")));
    }
    return {.gradients = aggregated == 0 ? workers : aggregated};
  }
  if (aggregated > 0) {
    throw UsageError(
        "--replicas-to-aggregate is for synchronous steps; leave it out, or leave --ps-mode asynchronous out");
  }
  if (options.max_staleness == 0) return {.gradients = workers};
  UpdatePolicy policy{.gradients = 1, .is_asynchronous = true, .chief_coordinates = has_chief_task};
  if (options.max_staleness > 0) policy.max_staleness = static_cast<std::uint64_t>(options.max_staleness);
  return policy;
}

std::unique_ptr<TaskGroup> join_tasks(const Options& options, const Environment& environment,
                                      const std::function<void()>& report_busy) {
  if (options.strategy != StrategyKind::parameter_server) {
    require_no_servers(options, environment);
    return nullptr;
  }
  check(options, environment);
  Environment with_strategy = environment;
  with_strategy[strategy_variable] = parameter_server_word;
  const ClusterSpec cluster = read_cluster_spec(with_strategy);
  if (cluster.servers.empty()) {
    throw UsageError(
        "--strategy parameter-server needs a cluster with ps and worker tasks, but there is no TF_CONFIG; set it for "
        "each task");
  }
  const UpdatePolicy policy = update_policy(options, cluster.tasks.size(), cluster.has_chief_task());
  report_busy();
  keep_freed_memory();
  const std::shared_ptr<TaskLinks> links =
      connect(cluster, {.token = JobToken::load(environment, value_of(environment, "LOCKSTEP_JOB_TOKEN_FILE")),
                        .job = value_of(environment, "LOCKSTEP_JOB_NAME"),
                        .rendezvous_timeout = seconds_of(environment, "LOCKSTEP_RENDEZVOUS_TIMEOUT", 600),
                        .report_interval = seconds_of(environment, "LOCKSTEP_REPORT_INTERVAL", 10),
                        .while_waiting = report_busy});
  World::set_end_handler([links](int code, const std::string& message) { links->say_goodbye({code, message}); });
  const auto while_waiting = [report_busy](bool waits) {
    if (waits) report_busy();
  };
  auto tasks = std::make_unique<TaskGroup>(
      links, WaitPolicy{.timeout = options.collective_timeout, .while_waiting = while_waiting}, policy.is_asynchronous);
  if (tasks->has_come_too_late()) {
    log_info("the job has finished meanwhile; nothing to do");
    World::end_together(static_cast<int>(ExitCode::success));
  }
  return tasks;
}

}  // namespace lockstep
