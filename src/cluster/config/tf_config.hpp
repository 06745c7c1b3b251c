// Parses TF_CONFIG, the variable with which TensorFlow's launchers and Kubernetes templates describe a cluster:
//   {"cluster": {"worker": ["a:5000", "b:5000"]}, "task": {"type": "worker", "index": 0}}
// The rules are TensorFlow's; configurations on which TensorFlow would hang are refused.
#pragma once

#include <string>

#include "cluster/config/cluster_spec.hpp"
#include "cluster/config/task_table.hpp"
#include "core/environment.hpp"

namespace lockstep {

/// Parses a value of TF_CONFIG. An empty text, or one without a cluster, means that this process trains alone. Throws
/// UsageError, with one sentence that quotes the mistake, for an invalid configuration.
[[nodiscard]] ClusterSpec parse_tf_config(const std::string& text,
                                          ParameterServers servers = ParameterServers::ignored);

/// The TF_CONFIG of a cluster, with lists of addresses where indices have no gaps; empty if this process trains alone.
[[nodiscard]] std::string to_tf_config(const ClusterSpec& spec);

/// Parses the environment's TF_CONFIG, or else its CLUSTER_CONFIG; without one, this process trains alone. `ps` tasks
/// take part if LOCKSTEP_STRATEGY is parameter-server.
[[nodiscard]] ClusterSpec read_cluster_spec(const Environment& environment);

}  // namespace lockstep
