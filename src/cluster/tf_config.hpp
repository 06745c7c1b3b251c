// TF_CONFIG, the variable in which TensorFlow's launchers and Kubernetes templates describe a cluster:
//   {"cluster": {"worker": ["a:5000", "b:5000"]}, "task": {"type": "worker", "index": 0}}
// It is read by TensorFlow's own rules, and what TensorFlow would hang on is refused.
#pragma once

#include <string>

#include "cluster/cluster_spec.hpp"
#include "core/environment.hpp"

namespace lockstep {

/// An empty text, or one without a cluster, is a process by itself. Throws UsageError, one sentence that shows what is
/// wrong, for all that cannot be followed.
[[nodiscard]] ClusterSpec parse_tf_config(const std::string& text);

/// The cluster that the environment's TF_CONFIG describes; a process by itself where it is not set.
[[nodiscard]] ClusterSpec cluster_of(const Environment& environment);

}  // namespace lockstep
