// A job's status as text: one line for /healthz, and the Prometheus text format 0.0.4 for /metrics.
#pragma once

#include <string>

#include "cluster/rendezvous/job_status.hpp"

namespace lockstep {

/// "ok: training in generation 2, step 340\n", or the problem if there is one.
[[nodiscard]] std::string format_health(const JobStatus& status);

/// All metrics in the Prometheus text format.
[[nodiscard]] std::string format_metrics(const JobStatus& status);

}  // namespace lockstep
