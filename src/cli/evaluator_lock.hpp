// The lock of a directory that one evaluator writes to at a time.
#pragma once

#include "core/file_descriptor.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// Locks DIRECTORY/.evaluator.lock until the descriptor is closed. A file system without locks lets everybody in.
/// Throws PeerError if another evaluator holds it: "another evaluator WRITES_TO directory; ... give another OPTION".
/// Throws IoError.
[[nodiscard]] FileDescriptor lock_for_evaluator(const std::filesystem::path& directory, const std::string& writes_to,
                                                const std::string& option);

}  // namespace lockstep
