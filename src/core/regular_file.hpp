// Refuses paths that are no regular files before they are opened.
#pragma once

#include <filesystem>

namespace lockstep {

/// Throws IoError if the path exists and is no regular file, without opening it: opening a FIFO waits for its writer,
/// and opening a device may do anything. `kind` completes the remedy: "give the path of a KIND".
void require_regular_file(const std::filesystem::path& file, const char* kind);

}  // namespace lockstep
