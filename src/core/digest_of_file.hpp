// The digest of a file's bytes.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

/// Digest::to_string() of all bytes, read in blocks. Throws IoError.
[[nodiscard]] std::string digest_of_file(const std::filesystem::path& file);

}  // namespace lockstep
