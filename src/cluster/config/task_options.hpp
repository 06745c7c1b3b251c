// The command-line options that describe a cluster to programs of TensorFlow 1:
//   --job_name=worker --task_index=1 --ps_hosts=p:2222 --worker_hosts=a:2222,b:2222 --master_hosts=m:2222
#pragma once

#include <string>
#include <vector>

#include "core/environment.hpp"

namespace lockstep {

/// Removes these options from a command line. If they describe a cluster, sets TF_CONFIG in `environment` to it. Throws
/// UsageError if they are wrong or incomplete, and if TF_CONFIG is set already. Returns warnings about harmless
/// mistakes.
std::vector<std::string> take_task_options(std::vector<std::string>& args, Environment& environment);

}  // namespace lockstep
