// Directories that are durable before they get the name by which readers find them.
#pragma once

#include <filesystem>

namespace lockstep {

/// Makes a new directory durable with all that is in it, then gives it its name: `target` is whole or absent, also
/// after a power failure. Throws IoError.
void publish_directory(const std::filesystem::path& directory, const std::filesystem::path& target);

}  // namespace lockstep
