// `lockstep cluster`: prints the cluster that TF_CONFIG or CLUSTER_CONFIG describes, which of its tasks this host can
// reach, and why it cannot reach the others.
#pragma once

#include <lockstep/core/error.hpp>

#include <ostream>
#include <span>
#include <string>

namespace lockstep {

/// `args` are those after the command. Throws UsageError for an invalid TF_CONFIG, and PeerError, after printing
/// everything, if a probed peer does not answer.
[[nodiscard]] ExitCode show_cluster(std::span<const std::string> args, std::ostream& out);

}  // namespace lockstep
