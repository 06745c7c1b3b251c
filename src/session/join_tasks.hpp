// How a process becomes a task of a parameter-server job.
#pragma once

#include "collective/parameter_server/task_group.hpp"
#include "collective/parameter_server/update_policy.hpp"
#include "collective/wait_loop.hpp"
#include "core/environment.hpp"

#include <lockstep/training/options.hpp>

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep {

/// Connects to all tasks of the TF_CONFIG with `--strategy parameter-server`; null with another strategy. When the
/// process ends, it tells the other tasks how. `report_busy` is called while this task waits. Throws UsageError if
/// there are no servers or options do not fit, PeerError if a task does not come.
[[nodiscard]] std::unique_ptr<TaskGroup> join_tasks(const Options& options, const Environment& environment,
                                                    const std::function<void()>& report_busy);

/// When the servers of a job with so many workers update, by --ps-mode, --max-staleness and --replicas-to-aggregate.
/// `has_chief_task`: a chief beside the workers, which coordinates asynchronous steps. Throws UsageError.
[[nodiscard]] UpdatePolicy update_policy(const Options& options, std::size_t workers, bool has_chief_task);

}  // namespace lockstep
