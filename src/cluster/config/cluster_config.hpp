// Parses CLUSTER_CONFIG, the variable with which charts and templates describe a cluster to pods that are all made from
// one template. A pod finds its own task by its name, in POD_NAME, or by its index in an Indexed Job:
//   {"ps": ["job-ps-0:5000"], "worker": {"address": "job-worker-{}.job:5000", "count": 4}}
#pragma once

#include "cluster/config/cluster_spec.hpp"
#include "core/environment.hpp"

namespace lockstep {

/// Parses the environment's CLUSTER_CONFIG. If it is not set, empty or without tasks, this process trains alone. Throws
/// UsageError, with one sentence that quotes the mistake, for an invalid configuration.
[[nodiscard]] ClusterSpec read_cluster_config(const Environment& environment);

}  // namespace lockstep
