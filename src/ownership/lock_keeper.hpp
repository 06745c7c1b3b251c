// Who keeps a job's locks from one generation of its workers to the next: the launcher of its chief.
#pragma once

#include "core/file_descriptor.hpp"

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// Without a keeper, any other job could take a directory while the workers restart.
struct LockKeeper {
  std::string process = {};                              ///< process_identity() of the keeper; empty: there is none
  std::vector<FileDescriptor> kept = {};                 ///< by it, of the generation before
  std::function<void(const FileDescriptor&)> keep = {};  ///< gives it a duplicate of a lock's descriptor
};

}  // namespace lockstep
