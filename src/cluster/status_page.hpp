// A job's status as text: a line for probes, and Prometheus' text format 0.0.4 for those who draw curves.
#pragma once

#include <string>

#include "cluster/job_status.hpp"

namespace lockstep {

/// "ok: training in generation 2, step 340\n", or the problem.
[[nodiscard]] std::string health_line(const JobStatus& status);

[[nodiscard]] std::string metrics_page(const JobStatus& status);

}  // namespace lockstep
