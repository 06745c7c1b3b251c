// A job's status as text: one line for /healthz, and the Prometheus text format 0.0.4 for /metrics.
#pragma once

#include <string>

#include "cluster/rendezvous/job_status.hpp"
#include "cluster/status/process_status.hpp"

namespace lockstep {

/// "ok: training in generation 2, step 340\n", or the problem if there is one.
[[nodiscard]] std::string format_health(const JobStatus& status);

/// All metrics in the Prometheus text format. What belongs to the whole job comes from the chief's launcher, and what
/// belongs to a rank from its own, so that a sum over all launchers counts nothing twice.
[[nodiscard]] std::string format_metrics(const JobStatus& status, const ProcessStatus& process);

}  // namespace lockstep
