// `lockstep cluster`: what a TF_CONFIG says, who of its tasks can be reached from here, and why the others cannot.
#pragma once

#include <lockstep/core/error.hpp>

#include <optional>
#include <ostream>
#include <string>

namespace lockstep {

struct ClusterOptions {
  std::optional<std::string> tf_config;  ///< instead of the variable's value; "@FILE" for a file's
  double timeout = 5;                    ///< seconds for names, and again for connections
  bool probe = true;
  bool json = false;
};

/// ExitCode::success where all peers answer or none was asked. Throws PeerError, after all is printed, where some do
/// not, and UsageError for a TF_CONFIG that cannot be followed.
[[nodiscard]] ExitCode show_cluster(const ClusterOptions& options, std::ostream& out);

}  // namespace lockstep
